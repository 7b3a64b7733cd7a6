package aggregate

import (
	"context"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// beginWith makes the shard, with the rules that a takeover goes by. Until it is over the partition keeps them.
func (p *partition) beginWith(v *ruleVersion) {
	p.lock()
	defer p.mu.Unlock()
	p.rules, p.shard = v, shard.New(p.shardConfig(), v.forShard())
}

func (v *ruleVersion) forShard() shard.Rules { return shard.Rules{Number: v.number, Set: v.set} }

// use makes the partition count by a version of the rules from its next event on, and judges
// the keys that it has by them. One that is not open yet takes the newest version when it is.
func (p *partition) use(v *ruleVersion) {
	p.lock()
	defer p.mu.Unlock()
	if !p.opened.Load() || v.number < p.rules.number || p.ctx.Err() != nil {
		return
	}
	if v != p.rules {
		p.agg.metrics.tell(p)
		p.rules = v
		err := p.shard.Use(v.forShard())
		if err == nil {
			err = p.perform()
		}
		if err != nil {
			p.die(p.ended(fmt.Errorf("note that the rules have changed: %w", err)))
			return
		}
	}
	p.rejudgeAll()
}

// rejudgeAll judges every key by the present rules, in the background, if that was not done. The
// partition is locked.
func (p *partition) rejudgeAll() {
	v := p.rules
	if p.shard.AllJudged() || p.passing == v {
		return
	}
	p.passing = v
	p.wg.Go(func() { p.die(p.ended(p.rejudge(p.ctx, v))) })
}

// rejudge goes through the keys in slices between events.
func (p *partition) rejudge(ctx context.Context, v *ruleVersion) error {
	began, changed := time.Now(), 0
	for {
		keys, more := p.nextToJudge(v)
		if !more {
			break
		}
		for len(keys) > 0 {
			if err := p.changelog.WaitBelow(ctx, sliceBytes); err != nil {
				return err
			}
			n, c, err := p.rejudgeSome(keys, v)
			if err != nil || n == 0 {
				return err
			}
			keys, changed = keys[n:], changed+c
		}
		p.partJudged(v)
	}
	p.lock()
	defer p.mu.Unlock()
	if p.rules != v {
		return nil // its own pass sees all keys
	}
	p.passing = nil
	if err := p.shard.PassDone(v.forShard()); err != nil {
		return err
	}
	p.log.Info("all keys have been judged by the new rules", "version", v.number, "keys", changed, "took_seconds", time.Since(began).Seconds())
	return p.perform()
}

// nextToJudge copies some keys that the pass has not been through; false after the last, and when there are newer rules.
func (p *partition) nextToJudge(v *ruleVersion) (keys [][]byte, more bool) {
	p.lock()
	defer p.mu.Unlock()
	return p.shard.NextToJudge(v.forShard())
}

func (p *partition) partJudged(v *ruleVersion) {
	p.lock()
	defer p.mu.Unlock()
	p.shard.PartJudged(v.forShard())
}

// rejudgeSome judges the first of the keys for as long as events may be kept waiting, and
// returns how many these were, 0 when there are newer rules, and how many verdicts changed.
func (p *partition) rejudgeSome(keys [][]byte, v *ruleVersion) (n, changed int, err error) {
	p.lock()
	defer p.mu.Unlock()
	clock := p.clock()
	for began := time.Now(); p.rules == v && n < len(keys) && (n == 0 || time.Since(began) < sliceTime); n++ {
		c, err := p.shard.Judge(keys[n], clock)
		if err != nil {
			return n, changed, err
		}
		changed += c
	}
	return n, changed, p.perform()
}
