package owner

import (
	"context"
	"fmt"
	"time"
)

// judging evaluates all keys by changed rules, in slices between events.
type judging struct {
	*core
	out     *outbox
	levels  *levels
	quotas  *quotas
	passing *Rules // of the running pass over all keys; nil if there is none. Under mu
}

// use makes the partition count by a version of the rules from its next event on, and evaluates its
// keys by them. A partition that is not open yet takes the newest version when it opens.
func (j *judging) use(v *Rules) {
	j.lock()
	defer j.mu.Unlock()
	if !j.opened.Load() || v.Number < j.rules.Number || j.ctx.Err() != nil {
		return
	}
	if v != j.rules {
		j.tally()
		j.rules = v
		err := j.shard.Judge().Use(v.forShard())
		if err == nil {
			err = j.out.perform()
		}
		if err != nil {
			j.fail(j.ended(fmt.Errorf("note that the rules have changed: %w", err)))
			return
		}
	}
	j.all()
}

// all evaluates every key by the current rules in the background, unless that was done. The
// partition is locked.
func (j *judging) all() {
	v := j.rules
	if j.shard.Judge().AllJudged() || j.passing == v {
		return
	}
	j.passing = v
	j.goes(func() error { return j.pass(j.ctx, v) })
}

// pass goes through the keys.
func (j *judging) pass(ctx context.Context, v *Rules) error {
	began, changed := time.Now(), 0
	for {
		keys, more := j.next(v)
		if !more {
			break
		}
		for len(keys) > 0 {
			for _, w := range []Writer{j.out.changelog, j.out.verdicts} { // what is left goes to the verdicts alone
				if err := w.WaitBelow(ctx, sliceBytes); err != nil {
					return err
				}
			}
			n, c, err := j.some(keys, v)
			if err != nil || n == 0 {
				return err
			}
			keys, changed = keys[n:], changed+c
		}
		j.partDone(v)
	}
	j.lock()
	defer j.mu.Unlock()
	if j.rules != v {
		return nil // the newer version's pass sees all keys
	}
	j.passing = nil
	if err := j.shard.Judge().PassDone(v.forShard()); err != nil {
		return err
	}
	j.log.Info("all keys have been judged by the new rules", "version", v.Number, "keys", changed, "took_seconds", time.Since(began).Seconds())
	return j.out.perform()
}

// next copies some keys that the pass has not seen. It returns false after the last, and if there
// are newer rules.
func (j *judging) next(v *Rules) (keys [][]byte, more bool) {
	j.lock()
	defer j.mu.Unlock()
	return j.shard.Judge().NextToJudge(v.forShard())
}

func (j *judging) partDone(v *Rules) {
	j.lock()
	defer j.mu.Unlock()
	j.shard.Judge().PartJudged(v.forShard())
}

// some evaluates the first of the keys, for as long as events may be delayed. It returns how many,
// 0 if there are newer rules, and how many verdicts changed.
func (j *judging) some(keys [][]byte, v *Rules) (n, changed int, err error) {
	j.lock()
	defer j.mu.Unlock()
	clock := j.clock()
	for began := time.Now(); j.rules == v && n < len(keys) && (n == 0 || time.Since(began) < sliceTime); n++ {
		c, err := j.shard.Judge().Key(keys[n], clock)
		if err != nil {
			return n, changed, err
		}
		changed += c
	}
	j.levels.wake()
	j.quotas.wake()
	return n, changed, j.out.perform()
}
