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

// inUse is the version of the rules that the shard counts by, and all that follows from it.
type inUse struct {
	Rules
	matcher    *rules.Matcher
	stepper    *rules.Stepper
	permits    *rules.Permits         // nil: no rule is strict
	vocabulary *rules.VocabularyCheck // nil: none is declared

	exempt  exemptions // that commands gave
	scratch []byte     // a block in the making
}

// Judge changes the rules, and judges keys by them beside events.
type Judge struct {
	log      *Log
	rules    *inUse
	table    *table
	levels   *Levels
	verdicts *Verdicts
	quotas   *Quotas

	judged         judged // by which rules the keys are judged
	lastCheckpoint []byte // the last checkpoint record that was asked for, without what is judged
}

func (j *Judge) setRules(r Rules) {
	j.log.tally.count(r.Set)
	j.rules.Rules, j.rules.matcher, j.rules.stepper = r, r.Set.NewMatcher(), r.Set.NewStepper()
	j.rules.stepper.Fuses = r.Set.NewFuses()
	j.rules.permits = r.Set.NewPermits()
	j.rules.vocabulary = r.Set.Vocabulary().NewCheck()
	j.levels.on = j.rules.permits != nil
	j.verdicts.notify = r.Set.Notified()
	j.rules.useExemptions()
}

// noteExemptions follows the exemptions in a key's state.
func (u *inUse) noteExemptions(key, state []byte) {
	u.exempt.note(key, state)
	u.useExemptions()
}

// useExemptions has the stepper ask only where there is something to find: to ask costs every
// judged event.
func (u *inUse) useExemptions() {
	u.stepper.Exempt = nil
	if len(u.exempt.byKey) > 0 {
		u.stepper.Exempt = u.exempt.exempts
	}
}

// noteJudged repeats the last checkpoint with what is judged now, ahead of all states that follow
// in the changelog. Where there is no checkpoint yet nothing is known to have been judged.
func (j *Judge) noteJudged() error {
	if j.lastCheckpoint == nil {
		return nil
	}
	return j.appendCheckpoint(j.lastCheckpoint)
}

// appendCheckpoint asks for a checkpoint record with what is judged at this place of the changelog,
// be it that of the states at the checkpoint's cut or not.
func (j *Judge) appendCheckpoint(body []byte) error {
	by, err := json.Marshal(j.judged.record())
	if err != nil {
		return err
	}
	value := append(append([]byte(`{"judged":`), by...), ',')
	value = append(value, body[1:]...) // without its brace
	j.log.out.States = append(j.log.out.States, Append{Key: []byte(CheckpointKey), Value: value, Urgent: true})
	j.lastCheckpoint = body
	return nil
}
