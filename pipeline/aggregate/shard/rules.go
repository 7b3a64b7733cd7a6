package shard

import (
	"errors"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// Use makes the shard count by a version of the rules from its next event on. Ahead of the first
// state by these rules it asks for a record that says so: after a crash right behind it, also under
// the rules from before, all keys are judged. A pass over all keys is due after it: see
// NextToJudge.
func (j *Judge) Use(r Rules) error {
	if r == j.rules.Rules {
		return nil
	}
	before := j.rules.Set
	j.setRules(r)
	j.judged.change(r.Set)
	if j.levels.announce(before) {
		j.judged.done = 0
	}
	j.rules.stepper.AfterJudged(j.judged.limits, j.judged.doubted)
	return j.noteJudged()
}

// AllJudged reports whether all keys are judged by the present rules.
func (j *Judge) AllJudged() bool { return j.judged.done == judgedAll }

// JudgedParts is how many of Parts the present pass, or the last, has been through.
func (j *Judge) JudgedParts() int { return j.judged.done }

// NextToJudge copies the keys of the first part of the table that the pass by a version of the
// rules has not been through; false after the last, and when there are newer rules. Keys that come
// meanwhile are counted by the new rules already. A pass that an owner before has begun goes on
// where it was.
func (j *Judge) NextToJudge(r Rules) (keys [][]byte, more bool) {
	if j.rules.Rules != r || j.judged.done == judgedAll {
		return nil, false
	}
	for ref := range j.table.Part(j.judged.done) {
		keys = append(keys, append([]byte(nil), j.table.Key(ref)...))
	}
	return keys, true
}

// PartJudged notes that the pass is through the keys that NextToJudge returned last.
func (j *Judge) PartJudged(r Rules) {
	if j.rules.Rules == r {
		j.judged.done++
	}
}

// PassDone notes that the pass is through all keys.
func (j *Judge) PassDone(r Rules) error {
	if j.rules.Rules != r {
		return nil // its own pass sees all keys
	}
	j.judged = judgedBy(r.Set)
	if j.levels.announced.pass {
		j.levels.announced.pass = false
		j.levels.say()
	}
	return j.noteJudged()
}

// Key judges a key by the present rules, and returns how many verdicts changed.
func (j *Judge) Key(key []byte, clock Clock) (changed int, err error) {
	ref, ok := j.table.Get(key)
	if !ok {
		return 0, nil // it left meanwhile
	}
	b, err := decodeBlock(j.table.Block(ref))
	if err != nil {
		return 0, errors.Join(errBlock, err)
	}
	if j.levels.announced.pass && len(j.rules.stepper.Level(b.state).Limits) > 0 {
		j.levels.add(key, "")
	}
	next, res := j.rules.stepper.Rejudge(append(j.rules.scratch[:0], blockHeaderSpace[:]...), b.state, key, j.log.Time(clock))
	j.rules.scratch = next
	if len(res.Changes) > 0 {
		b.spent = res.SpentAt
		ref = j.table.Replace(ref, key, putBlockHeader(next, &b))
		j.verdicts.issue(ref, res.Changes, event.NoTime)
	}
	j.quotas.noteLeft(key, j.rules.stepper.Left(), clock)
	if j.rules.stepper.Fuses != nil {
		if b, err := decodeBlock(j.table.Block(ref)); err == nil {
			j.rules.stepper.NoteState(b.state, key)
		}
	}
	return len(res.Changes), nil
}

// restoreJudged takes over what the last checkpoint says. One that says nothing is of an older
// program, or was never written: then every limit may have been judged by another set, and was if
// the checkpoint's set was another one.
func (j *Judge) restoreJudged(c *checkpoint) error {
	if c.Judged != nil {
		was, err := c.Judged.judged()
		if err != nil {
			return err
		}
		j.judged = was
	} else if j.table.Len() > 0 {
		j.judged = judged{pass: j.rules.Set.Hash, limits: j.rules.Set.Judged(), doubted: c.Rules == "" || c.Rules == j.rules.hash()}
		for hash := range j.judged.limits {
			j.judged.limits[hash] = rules.JudgedBy{}
		}
	}
	before := j.judged.pass
	j.judged.change(j.rules.Set)
	j.rules.stepper.AfterJudged(j.judged.limits, j.judged.doubted)
	if j.judged.pass == before {
		return nil
	}
	// As in Use: if this owner crashes behind its first states, and the rules of before come back, they were
	// judged by others meanwhile.
	return j.noteJudged()
}
