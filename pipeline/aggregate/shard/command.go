package shard

import (
	"encoding/json"
	"fmt"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// CommandKinds are the commands by their names.
var CommandKinds = map[string]rules.CommandKind{
	"block": rules.CommandBlock, "unblock": rules.CommandUnblock, "reset": rules.CommandReset,
	"exempt": rules.CommandExempt, "forget": rules.CommandForget,
}

// CommandRecord is a command as it is carried out, and as older programs sent it through the loop
// topic.
type CommandRecord struct {
	ID      string       `json:"id"`
	Command string       `json:"command"`
	Key     string       `json:"key"`            // its text, as it was given; "" of a batch
	Keys    []string     `json:"keys,omitempty"` // all keys, when they are not Key alone
	Rule    string       `json:"rule,omitempty"`
	For     event.Micros `json:"for_us,omitempty"`
	Reason  string       `json:"reason"`
	By      string       `json:"by"`

	OnBehalfOf string `json:"on_behalf_of,omitempty"`
}

// AllKeys are those that the record is carried out on.
func (c *CommandRecord) AllKeys() []string {
	if len(c.Keys) > 0 {
		return c.Keys
	}
	return []string{c.Key}
}

// Command carries a command out on one of its keys, at a broker's time. What was applied to the key
// stays as it is: which events are in its state does not change, and what of its loop is still to
// come is counted behind the command.
func (s *intake) Command(c *CommandRecord, key string, at event.Micros) error {
	return s.commandKey(c, key, s.commandOn(c, key, at, s.next[Input]), nil)
}

// commandOn is what a command does to one of its keys.
func (s *intake) commandOn(c *CommandRecord, key string, at event.Micros, offset int64) rules.Command {
	cmd := rules.Command{
		Kind: CommandKinds[c.Command], Rule: c.Rule, At: at, Until: at + c.For,
		Cause: verdict.Cause{ID: c.ID, Partition: s.cfg.ID, Offset: offset},
		Giver: rules.Giver{By: c.By, OnBehalfOf: c.OnBehalfOf, Reason: c.Reason},
	}
	if cmd.Kind == rules.CommandExempt && key != c.Key {
		// That it is exempt is in the state of the command's own key.
		cmd.Kind = rules.CommandUnblock
	}
	return cmd
}

// commandRecord carries out a command from the loop topic, where older programs put them, on each
// of its keys once: the key's applied offset tells. Its time is the broker's.
func (s *intake) commandRecord(rec *record.Record, clock Clock) error {
	if err := s.stepGathered(clock); err != nil { // events ahead of it come first
		return err
	}
	var c CommandRecord
	if err := json.Unmarshal(rec.Value[2:], &c); err != nil {
		s.deadLetter(Loop, rec, nil, fmt.Errorf("a command: %w", err))
		return nil
	}
	if _, ok := CommandKinds[c.Command]; !ok {
		return fmt.Errorf("%w: command %q", ErrNewerFormat, c.Command)
	}
	at := event.FromTime(rec.Time())
	s.broker = max(s.broker, at)
	lines, err := c.AuditLines(at)
	if err != nil {
		return err
	}
	for _, line := range lines { // also when it was carried out before: a crash may have lost it
		s.out.Aux = append(s.out.Aux, Aux{Topic: Audit, Key: c.AuditKey(), Value: line})
	}
	place := applied{rec.Offset + 1, 0}
	for _, key := range c.AllKeys() {
		if err := s.commandKey(&c, key, s.commandOn(&c, key, at, rec.Offset), &place); err != nil {
			return err
		}
	}
	return nil
}

// commandKey carries out a command on one key. place is its own in the loop, nil when it did not
// come that way.
func (s *intake) commandKey(c *CommandRecord, name string, cmd rules.Command, place *applied) error {
	key := []byte(name)
	var b block
	ref, known := s.table.Get(key)
	if known {
		var err error
		if b, err = decodeBlock(s.table.Block(ref)); err != nil {
			return err
		}
	}
	if place != nil && b.applied[Loop].covers(place.next-1, place.index) {
		s.tally.Replayed++
		return nil
	}
	had := len(b.state) > 0
	next, res := s.stepper.Command(append(s.scratch[:0], blockHeaderSpace[:]...), b.state, key, cmd)
	s.noteExemptions(key, next[len(blockHeaderSpace):])
	b.spent = res.SpentAt
	if place != nil {
		b.applied[Loop] = *place
	}
	raw := putBlockHeader(next, &b)
	if known {
		ref = s.table.Replace(ref, key, raw)
	} else {
		ref = s.table.Set(key, raw)
	}
	then := aftermath{done: &Done{ID: c.ID, Key: name, Had: had}}
	if cmd.Kind == rules.CommandForget {
		then.erase = s.erased(key, res.Changes)
	}
	if s.isStrict(key) {
		settles, _ := s.levels.take(name)
		then.level, then.gone = s.levelOf(name, next[len(blockHeaderSpace):], settles), cmd.Kind == rules.CommandForget
	}
	s.leftByCommand(name, cmd.Kind, s.stepper.Left(), cmd.At)
	s.issueThen(ref, res.Changes, event.NoTime, then)
	return nil
}

// erased are the record keys of all that may be in the verdict topic about a key: of what its
// rules are now, and of what was in force.
func (s *judging) erased(key []byte, changes []verdict.Verdict) [][]byte {
	out := s.rules.Set.RecordKeys(key)
	for i := range changes {
		if !s.rules.Set.Names(changes[i].Rule) {
			out = append(out, verdict.AppendRecordKey(nil, &changes[i]))
		}
	}
	return out
}
