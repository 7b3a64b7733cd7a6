package shard

import (
	"encoding/hex"
	"encoding/json"

	"github.com/tallygate/tallygate/rules"
)

// Rules is a version of the group's rules. Number is 0 for a set that is in no topic.
type Rules struct {
	Number    int64
	Published uint64 // what those who ask for permits know it by
	Set       *rules.Set
}

func (r *Rules) hash() string { return hex.EncodeToString(r.Set.Hash[:]) }

// judging has the rules, and which of them the keys are judged by.
type judging struct {
	telling
	exempt exemptions // that commands gave

	rules   Rules // all below follows from it
	judged  judged
	matcher *rules.Matcher
	stepper *rules.Stepper
	permits *rules.Permits // nil: no rule is strict

	vocabulary *rules.VocabularyCheck // nil: none is declared

	lastCheckpoint []byte // the last checkpoint record that was asked for, without what is judged
	scratch        []byte // a block in the making
}

// Rules is the version that the shard counts by.
func (s *judging) Rules() Rules { return s.rules }

func (s *judging) setRules(r Rules) {
	s.tally.count(r.Set)
	s.rules, s.matcher, s.stepper = r, r.Set.NewMatcher(), r.Set.NewStepper()
	s.stepper.Fuses = r.Set.NewFuses()
	s.permits = r.Set.NewPermits()
	s.vocabulary = r.Set.Vocabulary().NewCheck()
	s.levels.on = s.permits != nil
	s.notify = r.Set.Notified()
	s.useExemptions()
}

// noteExemptions follows the exemptions in a key's state.
func (s *judging) noteExemptions(key, state []byte) {
	s.exempt.note(key, state)
	s.useExemptions()
}

// useExemptions has the stepper ask only where there is something to find: to ask costs every
// judged event.
func (s *judging) useExemptions() {
	s.stepper.Exempt = nil
	if len(s.exempt.byKey) > 0 {
		s.stepper.Exempt = s.exempt.exempts
	}
}

// noteJudged repeats the last checkpoint with what is judged now, ahead of all states that follow
// in the changelog. Where there is no checkpoint yet nothing is known to have been judged.
func (s *judging) noteJudged() error {
	if s.lastCheckpoint == nil {
		return nil
	}
	return s.appendCheckpoint(s.lastCheckpoint)
}

// appendCheckpoint asks for a checkpoint record with what is judged at this place of the changelog,
// be it that of the states at the checkpoint's cut or not.
func (s *judging) appendCheckpoint(body []byte) error {
	by, err := json.Marshal(s.judged.record())
	if err != nil {
		return err
	}
	value := append(append([]byte(`{"judged":`), by...), ',')
	value = append(value, body[1:]...) // without its brace
	s.out.States = append(s.out.States, Append{Key: []byte(CheckpointKey), Value: value, Urgent: true})
	s.lastCheckpoint = body
	return nil
}
