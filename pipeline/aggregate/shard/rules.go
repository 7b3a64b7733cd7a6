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
func (s *judging) Use(r Rules) error {
	if r == s.rules {
		return nil
	}
	before := s.rules.Set
	s.setRules(r)
	s.judged.change(r.Set)
	s.announce(before)
	s.stepper.AfterJudged(s.judged.limits, s.judged.doubted)
	return s.noteJudged()
}

// AllJudged reports whether all keys are judged by the present rules.
func (s *judging) AllJudged() bool { return s.judged.done == judgedAll }

// JudgedParts is how many of Parts the present pass, or the last, has been through.
func (s *judging) JudgedParts() int { return s.judged.done }

// NextToJudge copies the keys of the first part of the table that the pass by a version of the
// rules has not been through; false after the last, and when there are newer rules. Keys that come
// meanwhile are counted by the new rules already. A pass that an owner before has begun goes on
// where it was.
func (s *judging) NextToJudge(r Rules) (keys [][]byte, more bool) {
	if s.rules != r || s.judged.done == judgedAll {
		return nil, false
	}
	for ref := range s.table.Part(s.judged.done) {
		keys = append(keys, append([]byte(nil), s.table.Key(ref)...))
	}
	return keys, true
}

// PartJudged notes that the pass is through the keys that NextToJudge returned last.
func (s *judging) PartJudged(r Rules) {
	if s.rules == r {
		s.judged.done++
	}
}

// PassDone notes that the pass is through all keys.
func (s *judging) PassDone(r Rules) error {
	if s.rules != r {
		return nil // its own pass sees all keys
	}
	s.judged = judgedBy(r.Set)
	if s.announced.pass {
		s.announced.pass = false
		s.say()
	}
	return s.noteJudged()
}

// Judge judges a key by the present rules, and returns how many verdicts changed.
func (s *judging) Judge(key []byte, clock Clock) (changed int, err error) {
	ref, ok := s.table.Get(key)
	if !ok {
		return 0, nil // it left meanwhile
	}
	b, err := decodeBlock(s.table.Block(ref))
	if err != nil {
		return 0, errors.Join(errBlock, err)
	}
	if s.announced.pass && len(s.stepper.Level(b.state).Limits) > 0 {
		s.announced.queued += s.levels.add(key, "")
	}
	next, res := s.stepper.Rejudge(append(s.scratch[:0], blockHeaderSpace[:]...), b.state, key, s.Time(clock))
	s.scratch = next
	if len(res.Changes) > 0 {
		b.spent = res.SpentAt
		ref = s.table.Replace(ref, key, putBlockHeader(next, &b))
		s.issue(ref, res.Changes, event.NoTime)
	}
	s.noteLeft(key, s.stepper.Left(), clock)
	if s.stepper.Fuses != nil {
		if b, err := decodeBlock(s.table.Block(ref)); err == nil {
			s.stepper.NoteState(b.state, key)
		}
	}
	return len(res.Changes), nil
}

// restoreJudged takes over what the last checkpoint says. One that says nothing is of an older
// program, or was never written: then every limit may have been judged by another set, and was if
// the checkpoint's set was another one.
func (s *judging) restoreJudged(c *checkpoint) error {
	if c.Judged != nil {
		j, err := c.Judged.judged()
		if err != nil {
			return err
		}
		s.judged = j
	} else if s.table.Len() > 0 {
		s.judged = judged{pass: s.rules.Set.Hash, limits: s.rules.Set.Judged(), doubted: c.Rules == "" || c.Rules == s.rules.hash()}
		for hash := range s.judged.limits {
			s.judged.limits[hash] = rules.JudgedBy{}
		}
	}
	before := s.judged.pass
	s.judged.change(s.rules.Set)
	s.stepper.AfterJudged(s.judged.limits, s.judged.doubted)
	if s.judged.pass == before {
		return nil
	}
	// As in Use: if this owner crashes behind its first states, and the rules of before come back, they were
	// judged by others meanwhile.
	return s.noteJudged()
}
