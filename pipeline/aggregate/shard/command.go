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

// commands carries commands out on keys.
type commands struct {
	log      *Log
	rules    *inUse
	table    *table
	levels   *Levels
	verdicts *Verdicts
	quotas   *Quotas
}

// on is what a command does to one of its keys.
func (cs *commands) on(c *CommandRecord, key string, at event.Micros, offset int64) rules.Command {
	cmd := rules.Command{
		Kind: CommandKinds[c.Command], Rule: c.Rule, At: at, Until: at + c.For,
		Cause: verdict.Cause{ID: c.ID, Partition: cs.log.cfg.ID, Offset: offset},
		Giver: rules.Giver{By: c.By, OnBehalfOf: c.OnBehalfOf, Reason: c.Reason},
	}
	if cmd.Kind == rules.CommandExempt && key != c.Key {
		// That it is exempt is in the state of the command's own key.
		cmd.Kind = rules.CommandUnblock
	}
	return cmd
}

// record carries out a command from the loop topic, where older programs put them, on each
// of its keys once: the key's applied offset tells. Its time is the broker's.
func (cs *commands) record(rec *record.Record) error {
	var c CommandRecord
	if err := json.Unmarshal(rec.Value[2:], &c); err != nil {
		cs.log.deadLetter(Loop, rec, nil, fmt.Errorf("a command: %w", err))
		return nil
	}
	if _, ok := CommandKinds[c.Command]; !ok {
		return fmt.Errorf("%w: command %q", ErrNewerFormat, c.Command)
	}
	at := event.FromTime(rec.Time())
	cs.log.broker = max(cs.log.broker, at)
	lines, err := c.AuditLines(at)
	if err != nil {
		return err
	}
	for _, line := range lines { // also when it was carried out before: a crash may have lost it
		cs.log.out.Aux = append(cs.log.out.Aux, Aux{Topic: Audit, Key: c.AuditKey(), Value: line})
	}
	place := applied{rec.Offset + 1, 0}
	for _, key := range c.AllKeys() {
		if err := cs.key(&c, key, cs.on(&c, key, at, rec.Offset), &place); err != nil {
			return err
		}
	}
	return nil
}

// key carries out a command on one key. place is its own in the loop, nil when it did not
// come that way.
func (cs *commands) key(c *CommandRecord, name string, cmd rules.Command, place *applied) error {
	key := []byte(name)
	var b block
	ref, known := cs.table.Get(key)
	if known {
		var err error
		if b, err = decodeBlock(cs.table.Block(ref)); err != nil {
			return err
		}
	}
	if place != nil && b.applied[Loop].covers(place.next-1, place.index) {
		cs.log.tally.Replayed++
		return nil
	}
	had := len(b.state) > 0
	next, res := cs.rules.stepper.Command(append(cs.rules.scratch[:0], blockHeaderSpace[:]...), b.state, key, cmd)
	cs.rules.noteExemptions(key, next[len(blockHeaderSpace):])
	b.spent = res.SpentAt
	if place != nil {
		b.applied[Loop] = *place
	}
	raw := putBlockHeader(next, &b)
	if known {
		ref = cs.table.Replace(ref, key, raw)
	} else {
		ref = cs.table.Set(key, raw)
	}
	then := followUps{done: &Done{ID: c.ID, Key: name, Had: had}}
	if cmd.Kind == rules.CommandForget {
		then.erase = cs.rules.erased(key, res.Changes)
	}
	if cs.levels.isStrict(key) {
		settles, _ := cs.levels.take(name)
		then.level, then.gone = cs.levels.levelOf(name, next[len(blockHeaderSpace):], settles), cmd.Kind == rules.CommandForget
	}
	cs.quotas.leftByCommand(name, cmd.Kind, cs.rules.stepper.Left(), cmd.At)
	cs.verdicts.issueThen(ref, res.Changes, event.NoTime, then)
	return nil
}

// erased are the record keys of all that may be in the verdict topic about a key: of what its
// rules are now, and of what was in force.
func (u *inUse) erased(key []byte, changes []verdict.Verdict) [][]byte {
	out := u.Set.RecordKeys(key)
	for i := range changes {
		if !u.Set.Names(changes[i].Rule) {
			out = append(out, verdict.AppendRecordKey(nil, &changes[i]))
		}
	}
	return out
}
