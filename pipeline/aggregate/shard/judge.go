package shard

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

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
	j.levels.announce(before) // where that asks for a pass, change has begun one
	j.rules.stepper.AfterJudged(j.judged.limits, j.judged.doubted)
	return j.noteJudged()
}

// AllJudged reports whether all keys are judged by the present rules.
func (j *Judge) AllJudged() bool { return j.judged.done == judgedAll }

// JudgedParts counts the Parts that the present pass, or the last, has been through.
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
	ref, b, known, err := j.table.lookUp(key)
	if err != nil {
		return 0, errors.Join(errBlock, err)
	}
	if !known {
		return 0, nil // it left meanwhile
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

// judged says by what a partition's keys were judged last. It is durable with the states: from the
// moment at which other rules come into force until a pass has judged all keys by them, it is
// unknown by what the changed limits are judged.
type judged struct {
	pass    [32]byte // the hash of the set that the last pass, or the present one, judges by
	done    int      // how many parts of the table it has been through; judgedAll: all
	limits  rules.Judged
	doubted bool // limits are what may have changed: see rules.Stepper.AfterJudged
}

const judgedAll = state.Parts

// judgedBy returns the state of a finished pass by a set.
func judgedBy(set *rules.Set) judged {
	return judged{pass: set.Hash, done: judgedAll, limits: set.Judged()}
}

// change notes that another set is in force from here on. What was judged otherwise is
// not known any more; limits that are gone stay until the pass is through, since they may come back
// before it has been everywhere.
func (j *judged) change(set *rules.Set) {
	if j.pass == set.Hash {
		return
	}
	limits, since := maps.Clone(j.limits), set.Since(j.limits)
	for hash, by := range set.Judged() {
		switch was, known := since[hash]; {
		case !known || was == rules.JudgedByNone:
			limits[hash] = rules.JudgedByNone // it is new, or comes back
		case was != by:
			limits[hash] = rules.JudgedBy{}
		default:
			limits[hash] = by
		}
	}
	*j = judged{pass: set.Hash, limits: limits}
}

// judgedRecord is judged as checkpoints have it, with hashes in hexadecimal.
type judgedRecord struct {
	Pass    string            `json:"pass"`
	Done    int               `json:"done"`
	Limits  map[string]string `json:"limits,omitempty"`
	Doubted bool              `json:"doubted,omitempty"`
}

func (j *judged) record() *judgedRecord {
	r := &judgedRecord{Pass: hex.EncodeToString(j.pass[:]), Done: j.done, Limits: make(map[string]string, len(j.limits)), Doubted: j.doubted}
	for hash, by := range j.limits {
		r.Limits[hex.EncodeToString(hash[:])] = hex.EncodeToString(by[:])
	}
	return r
}

func (r *judgedRecord) judged() (j judged, err error) {
	j = judged{done: min(max(r.Done, 0), judgedAll), limits: rules.Judged{}, doubted: r.Doubted}
	if err := unhex(j.pass[:], r.Pass); err != nil {
		return j, err
	}
	for text, value := range r.Limits {
		var hash rules.SectionHash
		var by rules.JudgedBy
		if err := unhex(hash[:], text); err != nil {
			return j, err
		}
		if err := unhex(by[:], value); err != nil {
			return j, err
		}
		j.limits[hash] = by
	}
	return j, nil
}

// worthPublishing leaves out the blocks that are over already: behind a backlog they would only
// make it longer. What was published before must not outlive them: a block that ends one that is in
// force is kept. state is the key's from before the step; in it what is left out is in force as if
// it had been published, and ends by itself. Where events have their producers' times, what is over
// was perhaps over when it was sent: a backlog of ours cannot be told from history, and all is
// published.
func (j *Judge) worthPublishing(changes []verdict.Verdict, state, key []byte, step *gatheredStep, clock Clock) []verdict.Verdict {
	if len(changes) == 0 || clock.Broker == event.NoTime || j.log.cfg.ProducerTimes {
		return changes
	}
	before := len(changes)
	changes = slices.DeleteFunc(changes, func(v verdict.Verdict) bool {
		if v.State != verdict.Block || v.Until > clock.Broker {
			return false
		}
		prior := j.rules.inForce(state, key, step.at, v.Rule)
		if prior == nil {
			return v.Cause == step.cause // this event's own: nothing was in force ahead of it
		}
		return prior.Until <= clock.Broker
	})
	j.log.tally.Over += uint64(before - len(changes))
	return changes
}

// SweepKeys is the number of keys that one Sweep looks at.
const SweepKeys = 64

// Sweep looks at the next SweepKeys keys, and lets those leave that are idle: their state matters
// to no event that may still come, and their applied offsets to no replay. It returns how many
// left.
func (j *Judge) Sweep(clock Clock) (evicted int, err error) {
	if j.log.broker == event.NoTime {
		return 0, nil
	}
	var idle [][]byte
	before := j.log.Time(clock) - j.rules.Set.MaxLateness
	for ref := range j.table.Sweep(SweepKeys) {
		b, err := decodeBlock(j.table.Block(ref))
		if err != nil {
			return 0, errors.Join(errBlock, err)
		}
		if b.spent < before && j.log.durable(b) && len(j.table.issued[string(j.table.Key(ref))]) == 0 && !j.levels.busy(j.table.Key(ref)) {
			idle = append(idle, append([]byte(nil), j.table.Key(ref)...))
		}
	}
	for _, key := range idle {
		j.table.Delete(key)
		j.rules.exempt.forget(key)
		delete(j.rules.allowed, string(key))
		j.log.out.States = append(j.log.out.States, Append{Key: key})
		if j.levels.isStrict(key) {
			j.levels.appendOwn(&protocol.Record{Gone: string(key)}, &Ack{})
		}
	}
	return len(idle), nil
}
