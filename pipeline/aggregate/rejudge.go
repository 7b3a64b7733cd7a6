package aggregate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
)

// beginWith sets the rules that a takeover goes by. Until it is over the partition keeps them:
// recovery reads them without the lock.
func (p *partition) beginWith(v *ruleVersion) {
	p.lock()
	defer p.mu.Unlock()
	p.setRules(v)
	p.judged = judgedBy(v.set) // nothing is there yet
}

// use makes the partition count by a version of the rules from its next event on, and judges
// the keys that it has by them. One that is not open yet takes the newest version when it is.
func (p *partition) use(v *ruleVersion) {
	p.lock()
	defer p.mu.Unlock()
	if !p.opened.Load() || v.number < p.rules.number || p.ctx.Err() != nil {
		return
	}
	if v != p.rules {
		p.setRules(v)
		p.judged.change(v.set)
		p.stepper.AfterJudged(p.judged.limits, p.judged.doubted)
		// Ahead of the first state by these rules: after a crash right behind it, also under the rules
		// from before, all keys are judged.
		if err := p.noteJudged(); err != nil {
			p.die(p.ended(fmt.Errorf("note that the rules have changed: %w", err)))
			return
		}
	}
	p.rejudgeAll()
}

func (p *partition) setRules(v *ruleVersion) {
	p.tally.flush(p.agg.metrics)
	p.tally.matches, p.tally.of = make([]uint64, len(v.matches)), v.matches
	p.rules, p.matcher, p.stepper = v, v.set.NewMatcher(), v.set.NewStepper()
	p.stepper.Fuses = v.set.NewFuses()
	p.useExemptions()
}

// rejudgeAll judges every key by the present rules, in the background, if that was not done. The
// partition is locked.
func (p *partition) rejudgeAll() {
	v := p.rules
	if p.judged.done == judgedAll || p.passing == v {
		return
	}
	p.passing = v
	p.wg.Go(func() { p.die(p.ended(p.rejudge(p.ctx, v))) })
}

// rejudge goes through the table in slices between events. Keys that come meanwhile are
// counted by the new rules already. A pass that an owner before has begun goes on where it was.
func (p *partition) rejudge(ctx context.Context, v *ruleVersion) error {
	began, changed := time.Now(), 0
	for {
		keys, more := p.nextPart(v)
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
		p.partDone(v)
	}
	p.lock()
	defer p.mu.Unlock()
	if p.rules != v {
		return nil // its own pass sees all keys
	}
	p.passing, p.judged = nil, judgedBy(v.set)
	p.log.Info("all keys are judged by the new rules", "version", v.number, "keys", changed, "took_seconds", time.Since(began).Seconds())
	return p.noteJudged()
}

// nextPart copies the keys of the first part of the table that the pass has not been through; false after
// the last, and when there are newer rules.
func (p *partition) nextPart(v *ruleVersion) (keys [][]byte, more bool) {
	p.lock()
	defer p.mu.Unlock()
	if p.rules != v || p.judged.done == judgedAll {
		return nil, false
	}
	return p.keysOfPart(p.judged.done), true
}

func (p *partition) partDone(v *ruleVersion) {
	p.lock()
	defer p.mu.Unlock()
	if p.rules == v {
		p.judged.done++
	}
}

func (p *partition) keysOfPart(part int) (keys [][]byte) {
	for ref := range p.table.Part(part) {
		keys = append(keys, append([]byte(nil), p.table.Key(ref)...))
	}
	return keys
}

// rejudgeSome judges the first of the keys for as long as events may be kept waiting, and
// returns how many these were, 0 when there are newer rules, and how many verdicts changed.
func (p *partition) rejudgeSome(keys [][]byte, v *ruleVersion) (n, changed int, err error) {
	p.lock()
	defer p.mu.Unlock()
	for began := time.Now(); p.rules == v && n < len(keys) && (n == 0 || time.Since(began) < sliceTime); n++ {
		c, err := p.rejudgeKey(keys[n])
		if err != nil {
			return n, changed, err
		}
		changed += c
	}
	return n, changed, nil
}

func (p *partition) rejudgeKey(key []byte) (changed int, err error) {
	ref, ok := p.table.Get(key)
	if !ok {
		return 0, nil // it left meanwhile
	}
	b, err := decodeBlock(p.table.Block(ref))
	if err != nil {
		return 0, errors.Join(errBlock, err)
	}
	next, res := p.stepper.Rejudge(append(p.scratch[:0], blockHeaderSpace[:]...), b.state, key, p.clock())
	p.scratch = next
	if len(res.Changes) > 0 {
		b.spent = res.SpentAt
		ref = p.table.Replace(ref, key, putBlockHeader(next, &b))
		err = p.writeThrough(ref, res.Changes, event.NoTime)
	}
	if p.stepper.Fuses != nil {
		if b, err := decodeBlock(p.table.Block(ref)); err == nil {
			p.stepper.NoteState(b.state, key)
		}
	}
	return len(res.Changes), err
}
