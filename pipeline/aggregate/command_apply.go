package aggregate

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/fetch"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// commandRecord carries out a command from the loop topic, on each of its keys once: the key's mark
// tells. Its time is the broker's.
func (p *partition) commandRecord(m *fetch.Record) error {
	if err := p.stepGathered(); err != nil { // events ahead of it come first
		return err
	}
	var c commandRecord
	if err := json.Unmarshal(m.Value[2:], &c); err != nil {
		return p.deadLetter(loopLane, m, nil, fmt.Errorf("a command: %w", err))
	}
	kind, ok := commandKinds[c.Command]
	if !ok {
		return fmt.Errorf("%w: command %q", errNewerFormat, c.Command)
	}
	at := event.FromTime(m.Time())
	p.broker = max(p.broker, at)
	if err := p.auditCommand(&c, at); err != nil { // also when it was carried out before: a crash may have lost it
		return err
	}
	cmd := rules.Command{
		Kind: kind, Rule: c.Rule, At: at, Until: at + c.For,
		Cause: verdict.Cause{ID: c.ID, Partition: p.id, Offset: m.Offset},
	}
	for _, key := range c.keys() {
		if kind == rules.CommandExempt && key != c.Key {
			cmd.Kind = rules.CommandUnblock // that it is exempt, the state of the command's own key says
		}
		if err := p.commandKey(&c, []byte(key), cmd, m.Offset); err != nil {
			return err
		}
	}
	return nil
}

// commandKey carries out a command on one key.
func (p *partition) commandKey(c *commandRecord, key []byte, cmd rules.Command, offset int64) error {
	var b block
	ref, known := p.table.Get(key)
	if known {
		var err error
		if b, err = decodeBlock(p.table.Block(ref)); err != nil {
			return err
		}
	}
	if b.marks[loopLane].covers(offset, 0) {
		p.tally.replayed++
		return nil
	}
	had := len(b.state) > 0
	next, res := p.stepper.Command(append(p.scratch[:0], blockHeaderSpace[:]...), b.state, key, cmd)
	p.scratch = next
	p.noteExemptions(key, next[len(blockHeaderSpace):])
	b.marks[loopLane], b.spent = mark{offset + 1, 0}, res.SpentAt
	raw := putBlockHeader(next, &b)
	if known {
		ref = p.table.Replace(ref, key, raw)
	} else {
		ref = p.table.Set(key, raw)
	}
	t := thenDo{call: func(vs []verdict.Verdict) { p.commands.done(c.ID, had, vs) }}
	if cmd.Kind == rules.CommandForget {
		t.erase = p.erased(key, res.Changes)
	}
	return p.writeThroughThen(ref, res.Changes, event.NoTime, t)
}

// erased are the record keys of all that may be in the verdict topic about a key: of what its
// rules are now, and of what was in force.
func (p *partition) erased(key []byte, changes []verdict.Verdict) [][]byte {
	out := p.rules.set.RecordKeys(key)
	for i := range changes {
		if !p.rules.set.Names(changes[i].Rule) {
			out = append(out, verdict.AppendRecordKey(nil, &changes[i]))
		}
	}
	return out
}

// commandAudit is a command in the audit topic.
type commandAudit struct {
	Type string       `json:"type"`
	At   event.Micros `json:"at"`
	By   string       `json:"by"`

	OnBehalfOf string `json:"on_behalf_of,omitempty"` // as By says

	Command string `json:"command"`
	Key     string `json:"key"`
	Rule    string `json:"rule,omitempty"`
	Until   string `json:"until,omitempty"`
	Reason  string `json:"reason"`
	Keys    int    `json:"keys,omitempty"` // that it was carried out on, when that is not Key alone
	ID      string `json:"id"`
}

func (p *partition) auditCommand(c *commandRecord, at event.Micros) error {
	line := commandAudit{Type: "command", At: at, By: c.By, OnBehalfOf: c.OnBehalfOf, Command: c.Command, Key: c.Key, Rule: c.Rule, Reason: c.Reason, Keys: len(c.Keys), ID: c.ID}
	if c.For > 0 {
		line.Until = (at + c.For).String()
	}
	value, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("audit record: %w", err)
	}
	return p.sendAside(p.agg.names.Audit, time.Time{}, []byte(c.Key), value, nil)
}
