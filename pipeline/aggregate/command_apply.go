package aggregate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/fetch"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// commandTime is the time that a command has: a broker's, as far as its acknowledgements tell, and no earlier
// than what is counted.
func (p *partition) commandTime() event.Micros {
	p.lock()
	defer p.mu.Unlock()
	at, _ := p.clockOfBroker.now() // known since the fence
	return max(at, p.clock())
}

// commandSome carries a command out on the first of the keys, for as long as events may be kept waiting, and
// returns how many these were. Keys' marks stay as they are: which events are in a key's state does not change, and
// what of its loop is still to come is counted behind the command.
func (p *partition) commandSome(c *commandRecord, keys []string, at event.Micros) (n int, err error) {
	p.lock()
	defer p.mu.Unlock()
	if p.working.Err() != nil {
		return 0, p.changedOwner(c)
	}
	place := p.next[inputLane]
	for began := time.Now(); n < len(keys) && (n == 0 || time.Since(began) < sliceTime); n++ {
		if err := p.commandKey(c, keys[n], p.commandOn(c, keys[n], at, place), nil); err != nil {
			p.die(p.ended(err))
			return n, err
		}
	}
	return n, nil
}

// commandOn is what a command does to one of its keys.
func (p *partition) commandOn(c *commandRecord, key string, at event.Micros, place int64) rules.Command {
	cmd := rules.Command{
		Kind: commandKinds[c.Command], Rule: c.Rule, At: at, Until: at + c.For,
		Cause: verdict.Cause{ID: c.ID, Partition: p.id, Offset: place},
	}
	if cmd.Kind == rules.CommandExempt && key != c.Key {
		cmd.Kind = rules.CommandUnblock // that it is exempt, the state of the command's own key says
	}
	return cmd
}

// commandRecord carries out a command from the loop topic, where older programs put them, on each of its keys once: the
// key's mark tells. Its time is the broker's.
func (p *partition) commandRecord(m *fetch.Record) error {
	if err := p.stepGathered(); err != nil { // events ahead of it come first
		return err
	}
	var c commandRecord
	if err := json.Unmarshal(m.Value[2:], &c); err != nil {
		return p.deadLetter(loopLane, m, nil, fmt.Errorf("a command: %w", err))
	}
	if _, ok := commandKinds[c.Command]; !ok {
		return fmt.Errorf("%w: command %q", errNewerFormat, c.Command)
	}
	at := event.FromTime(m.Time())
	p.broker = max(p.broker, at)
	line, err := c.auditLine(at)
	if err != nil {
		return err
	}
	// Also when it was carried out before: a crash may have lost it.
	if err := p.sendAside(p.agg.names.Audit, time.Time{}, []byte(c.Key), line, nil); err != nil {
		return err
	}
	place := mark{m.Offset + 1, 0}
	for _, key := range c.keys() {
		if err := p.commandKey(&c, key, p.commandOn(&c, key, at, m.Offset), &place); err != nil {
			return err
		}
	}
	return nil
}

// commandKey carries out a command on one key. place is its own in the loop, nil when it did not come that way.
func (p *partition) commandKey(c *commandRecord, name string, cmd rules.Command, place *mark) error {
	key := []byte(name)
	var b block
	ref, known := p.table.Get(key)
	if known {
		var err error
		if b, err = decodeBlock(p.table.Block(ref)); err != nil {
			return err
		}
	}
	if place != nil && b.marks[loopLane].covers(place.next-1, place.index) {
		p.tally.replayed++
		return nil
	}
	had := len(b.state) > 0
	next, res := p.stepper.Command(append(p.scratch[:0], blockHeaderSpace[:]...), b.state, key, cmd)
	p.scratch = next
	p.noteExemptions(key, next[len(blockHeaderSpace):])
	b.spent = res.SpentAt
	if place != nil {
		b.marks[loopLane] = *place
	}
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

// auditLine is the command's, given at that time.
func (c *commandRecord) auditLine(at event.Micros) ([]byte, error) {
	line := commandAudit{Type: "command", At: at, By: c.By, OnBehalfOf: c.OnBehalfOf, Command: c.Command, Key: c.Key, Rule: c.Rule, Reason: c.Reason, Keys: len(c.Keys), ID: c.ID}
	if c.For > 0 {
		line.Until = (at + c.For).String()
	}
	value, err := json.Marshal(line)
	if err != nil {
		return nil, fmt.Errorf("audit record: %w", err)
	}
	return value, nil
}

// auditFirst puts a command into the audit, and waits until it is durable there.
func (p *partition) auditFirst(ctx context.Context, c *commandRecord, at event.Micros) error {
	line, err := c.auditLine(at)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	return p.agg.side.sendAndWait(ctx, p.agg.names.Audit, []byte(c.Key), line)
}
