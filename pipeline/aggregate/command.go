package aggregate

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// Command is what an operator does to one key.
type Command struct {
	Name   string        // block, unblock, reset, exempt or forget
	Key    []event.Dim   // sorted by name
	Rule   string        // of unblock, reset and exempt: the rule or limit; "" is all
	For    time.Duration // of block and exempt: how long; of exempt 0 ends an exemption
	Reason string
	By     string // who gave it
}

// Commanded is what a command did, once that is durable and published.
type Commanded struct {
	ID        string            `json:"id"`
	Partition int32             `json:"partition"`
	Verdicts  []verdict.Verdict `json:"verdicts"` // that it published; those that were cleared, too
}

// maxCommandFor is how long a block or an exemption may last: what is in force for longer than the verdict
// topic keeps its records would be lost with a Redis that is filled anew.
const maxCommandFor = 90 * 24 * time.Hour

var commandKinds = map[string]rules.CommandKind{
	"block": rules.CommandBlock, "unblock": rules.CommandUnblock, "reset": rules.CommandReset,
	"exempt": rules.CommandExempt, "forget": rules.CommandForget,
}

func (c *Command) validate() error {
	kind, ok := commandKinds[c.Name]
	lasts := kind == rules.CommandBlock || kind == rules.CommandExempt
	var errs []error
	if !ok {
		errs = append(errs, fmt.Errorf("there is no command %q: block, unblock, reset, exempt or forget", c.Name))
	}
	if len(c.Key) == 0 {
		errs = append(errs, errors.New("a command needs a key, such as uid=42"))
	}
	if strings.TrimSpace(c.Reason) == "" {
		errs = append(errs, errors.New("a command needs a reason: it is kept in the audit"))
	}
	if ok && !lasts && c.For != 0 {
		errs = append(errs, fmt.Errorf("%s has no end: leave out how long", c.Name))
	}
	if kind == rules.CommandBlock && (c.For <= 0 || c.Rule != "") {
		errs = append(errs, errors.New("a block needs how long it lasts, and names no rule"))
	}
	if kind == rules.CommandForget && c.Rule != "" {
		errs = append(errs, errors.New("forget erases all of a key: it names no rule"))
	}
	if c.For < 0 || c.For > maxCommandFor {
		errs = append(errs, fmt.Errorf("%v: at most %v, which is as long as verdicts are kept", c.For, maxCommandFor))
	}
	return errors.Join(errs...)
}

// ErrCommand says that a command is wrong.
var ErrCommand = errors.New("aggregate: not a command")

// commandRecord is a command on its way through the loop topic to the key's one writer.
type commandRecord struct {
	ID      string       `json:"id"`
	Command string       `json:"command"`
	Key     string       `json:"key"` // its text
	Rule    string       `json:"rule,omitempty"`
	For     event.Micros `json:"for_us,omitempty"`
	Reason  string       `json:"reason"`
	By      string       `json:"by"`
}

// Command carries a command out on a key that this instance owns, and returns when what it did is
// durable and published. It goes through the loop topic, like what other partitions forward: no crash reorders it
// with events, or carries it out twice. When it returns an error that is not ErrCommand or
// ErrNotOwner, the command may still take effect.
func (a *Aggregator) Command(ctx context.Context, c Command) (Commanded, error) {
	if err := c.validate(); err != nil {
		return Commanded{}, fmt.Errorf("%w: %w", ErrCommand, err)
	}
	id := a.Partition(c.Key)
	p := a.partition(id)
	if p == nil || !p.opened.Load() || p.ctx.Err() != nil {
		return Commanded{}, fmt.Errorf("%w: partition %d", ErrNotOwner, id)
	}
	rec := commandRecord{
		ID: rand.Text(), Command: c.Name, Key: event.FormatKey(c.Key), Rule: c.Rule,
		For: event.FromDuration(c.For), Reason: c.Reason, By: c.By,
	}
	done := p.commands.await(rec.ID)
	defer p.commands.forget(rec.ID)
	if err := p.sendCommand(&rec); err != nil {
		return Commanded{}, fmt.Errorf("send the command: %w", err)
	}
	select {
	case vs := <-done:
		return Commanded{ID: rec.ID, Partition: id, Verdicts: vs}, nil
	case <-p.ctx.Done():
		return Commanded{}, fmt.Errorf("partition %d changed its owner: look whether the command took effect", id)
	case <-ctx.Done():
		return Commanded{}, fmt.Errorf("the command is not acknowledged yet, and may still take effect: %w", ctx.Err())
	}
}

func (p *partition) sendCommand(c *commandRecord) error {
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	p.lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return fmt.Errorf("%w: partition %d", ErrNotOwner, p.id)
	}
	value := append([]byte{loopVersion, loopKindCommand}, body...)
	return p.loopWriter(p.id).Append(p.ctx, fenced.Record{Value: value}, true, nil)
}

// commands are those that somebody of this process waits for.
type commands struct {
	mu   sync.Mutex
	wait map[string]chan []verdict.Verdict
}

func (s *commands) await(id string) <-chan []verdict.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wait == nil {
		s.wait = map[string]chan []verdict.Verdict{}
	}
	s.wait[id] = make(chan []verdict.Verdict, 1)
	return s.wait[id]
}

func (s *commands) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wait, id)
}

func (s *commands) done(id string, vs []verdict.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := s.wait[id]; ch != nil {
		ch <- vs
		delete(s.wait, id)
	}
}

// commandRecord carries out a command from the loop topic, once: the key's mark tells. Its time is
// the broker's.
func (p *partition) commandRecord(m *sarama.ConsumerMessage) error {
	if err := p.stepGathered(); err != nil { // events ahead of it come first
		return err
	}
	var c commandRecord
	if err := json.Unmarshal(m.Value[2:], &c); err != nil {
		return p.deadLetter(m, nil, fmt.Errorf("a command: %w", err))
	}
	kind, ok := commandKinds[c.Command]
	if !ok {
		return fmt.Errorf("%w: command %q", errNewerFormat, c.Command)
	}
	at := event.FromTime(m.Timestamp)
	p.broker = max(p.broker, at)
	if err := p.auditCommand(&c, at); err != nil { // also when it was carried out before: a crash may have lost it
		return err
	}
	key := []byte(c.Key)
	var b block
	ref, known := p.table.Get(key)
	if known {
		var err error
		if b, err = decodeBlock(p.table.Block(ref)); err != nil {
			return err
		}
	}
	place := mark{m.Offset + 1, 0}
	if b.marks[loopLane].covers(m.Offset, 0) {
		p.tally.replayed++
		return nil
	}
	next, res := p.stepper.Command(append(p.scratch[:0], blockHeaderSpace[:]...), b.state, key, rules.Command{
		Kind: kind, Rule: c.Rule, At: at, Until: at + c.For,
		Cause: verdict.Cause{ID: c.ID, Partition: p.id, Offset: m.Offset},
	})
	p.scratch = next
	b.marks[loopLane], b.spent = place, res.SpentAt
	raw := putBlockHeader(next, &b)
	if known {
		ref = p.table.Replace(ref, key, raw)
	} else {
		ref = p.table.Set(key, raw)
	}
	return p.writeThroughThen(ref, res.Changes, event.NoTime, func(vs []verdict.Verdict) { p.commands.done(c.ID, vs) })
}

// commandAudit is a command in the audit topic.
type commandAudit struct {
	Type    string       `json:"type"`
	At      event.Micros `json:"at"`
	By      string       `json:"by"`
	Command string       `json:"command"`
	Key     string       `json:"key"`
	Rule    string       `json:"rule,omitempty"`
	Until   string       `json:"until,omitempty"`
	Reason  string       `json:"reason"`
	ID      string       `json:"id"`
}

func (p *partition) auditCommand(c *commandRecord, at event.Micros) error {
	line := commandAudit{Type: "command", At: at, By: c.By, Command: c.Command, Key: c.Key, Rule: c.Rule, Reason: c.Reason, ID: c.ID}
	if c.For > 0 {
		line.Until = (at + c.For).String()
	}
	value, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("audit record: %w", err)
	}
	return p.sendAside(p.agg.names.Audit, time.Time{}, []byte(c.Key), value, nil)
}
