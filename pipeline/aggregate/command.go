package aggregate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
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

	OnBehalfOf string // for whom, as that one says; "" is nobody else
}

// Commanded is what a command did, once that is durable and published.
type Commanded struct {
	ID        string            `json:"id"`
	Partition int32             `json:"partition"`
	Keys      int               `json:"keys"`     // that had a state: of forget those that were erased
	Verdicts  []verdict.Verdict `json:"verdicts"` // that it published, maxToldVerdicts at most; those that were cleared, too
}

// maxToldVerdicts bounds an answer: a user may have thousands of keys.
const maxToldVerdicts = 1000

// maxCommandFor is how long a block or an exemption may last: what is in force for longer than the verdict
// topic keeps its records would be lost with a Redis that is filled anew.
const maxCommandFor = 90 * 24 * time.Hour

func (c *Command) validate() error {
	kind, ok := shard.CommandKinds[c.Name]
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

// Command carries a command out on a key that this instance owns, and returns when it is in the audit, and what it
// did is durable and published. It stands behind no event that waits to be counted: the audit has it, and then the
// owner changes the key's state between two events and writes it through, with the marks that it has, so that no crash
// carries it out twice. When it returns an error that is not ErrCommand or ErrNotOwner, the command may
// have taken effect, of forget and exempt on some of the keys: it can be given again.
func (a *Aggregator) Command(ctx context.Context, c Command) (Commanded, error) {
	if err := c.validate(); err != nil {
		return Commanded{}, fmt.Errorf("%w: %w", ErrCommand, err)
	}
	id := a.Partition(c.Key)
	p := a.partition(id)
	if p == nil || !p.opened.Load() || p.ctx.Err() != nil {
		return Commanded{}, fmt.Errorf("%w: partition %d", ErrNotOwner, id)
	}
	if err := p.knowsRule(c.Rule); err != nil {
		return Commanded{}, fmt.Errorf("%w: %w", ErrCommand, err)
	}
	rec := shard.CommandRecord{
		ID: rand.Text(), Command: c.Name, Key: event.FormatKey(c.Key), Rule: c.Rule,
		For: event.FromDuration(c.For), Reason: c.Reason, By: c.By, OnBehalfOf: c.OnBehalfOf,
	}
	done := Commanded{ID: rec.ID, Partition: id}
	if !c.wide() {
		err := p.carryOut(ctx, &rec, &done)
		return done, err
	}
	found, err := p.keysWith(rec.Key)
	if err == nil {
		rec.Keys = found
		err = p.carryOut(ctx, &rec, &done)
	}
	if err != nil {
		return Commanded{}, err
	}
	// What came up between looking and the command.
	later, err := p.keysWith(rec.Key)
	if later = without(later, found); err == nil && len(later) > 0 {
		rec.Keys = later
		err = p.carryOut(ctx, &rec, &done)
	}
	return done, err
}

// knowsRule refuses a name that no rule has: nothing would come of it, and nobody would notice.
func (p *partition) knowsRule(name string) error {
	p.lock()
	defer p.mu.Unlock()
	if name == "" || p.rules.set.Names(name) {
		return nil
	}
	return noRule(name)
}

func noRule(name string) error {
	return fmt.Errorf("no rule, and no limit as rule/limit, is called %q", name)
}

// carryOut puts a command into the audit, gives it on all of its keys, and waits until it is done.
func (p *partition) carryOut(ctx context.Context, rec *shard.CommandRecord, done *Commanded) error {
	at := p.commandTime()
	if err := p.auditFirst(ctx, rec, at); err != nil {
		return p.notYet(ctx, rec, "it is not in the audit yet, and nothing was done", err)
	}
	keys := rec.AllKeys()
	wait := p.commands.await(rec.ID, len(keys))
	defer p.commands.forget(rec.ID)
	for left := keys; len(left) > 0; {
		n, err := p.commandSome(rec, left, at)
		if err != nil && p.ctx.Err() != nil {
			return p.changedOwner(rec)
		}
		if err != nil {
			return err
		}
		if left = left[n:]; len(left) > 0 && p.changelog.AwaitRoom(ctx) != nil {
			return p.notYet(ctx, rec, fmt.Sprintf("it was carried out on %d of %d keys: give it again, which does the rest", len(keys)-len(left), len(keys)), ctx.Err())
		}
	}
	select {
	case so := <-wait:
		done.Keys += so.keys
		room := max(0, maxToldVerdicts-len(done.Verdicts))
		done.Verdicts = append(done.Verdicts, so.verdicts[:min(room, len(so.verdicts))]...)
		return nil
	case <-p.ctx.Done():
		return p.changedOwner(rec)
	case <-ctx.Done():
		return p.notYet(ctx, rec, "it is not acknowledged yet, and may still take effect", ctx.Err())
	}
}

// changedOwner says how far a command is whose partition has ended here. Nobody goes on with it: the next owner knows of the
// events, and not of commands.
func (p *partition) changedOwner(rec *shard.CommandRecord) error {
	keys := len(rec.AllKeys())
	if keys == 1 {
		return fmt.Errorf("partition %d changed its owner: look whether the command took effect, or give it again", p.id)
	}
	return fmt.Errorf("partition %d changed its owner: the command is durable on %d of %d keys, and may be on more: give it again, which does the rest",
		p.id, keys-p.commands.left(rec.ID, keys), keys)
}

// notYet says how far a command is that was not done in time, and how late its partition is.
func (p *partition) notYet(ctx context.Context, rec *shard.CommandRecord, far string, err error) error {
	if p.ctx.Err() != nil && ctx.Err() == nil {
		return p.changedOwner(rec)
	}
	return fmt.Errorf("the command waits for Kafka: %s; %s: %w", far, p.lateness(time.Now()), err)
}

// commands are those that somebody of this process waits for.
type commands struct {
	mu   sync.Mutex
	wait map[string]*commandWait
}

// commandWait is a command, until it is done with all of its keys.
type commandWait struct {
	left int
	so   carriedOut
	ch   chan carriedOut
}

// carriedOut is what came of it.
type carriedOut struct {
	keys     int // that had a state
	verdicts []verdict.Verdict
}

func (s *commands) await(id string, keys int) <-chan carriedOut {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wait == nil {
		s.wait = map[string]*commandWait{}
	}
	w := &commandWait{left: keys, ch: make(chan carriedOut, 1)}
	s.wait[id] = w
	return w.ch
}

func (s *commands) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wait, id)
}

// left is on how many of its keys a command is not done yet; of one that nobody waits for it is all of them.
func (s *commands) left(id string, keys int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.wait[id]; w != nil {
		return w.left
	}
	return keys
}

// done tells that a command is done with one of its keys.
func (s *commands) done(id string, had bool, vs []verdict.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.wait[id]
	if w == nil {
		return
	}
	if had {
		w.so.keys++
	}
	w.so.verdicts = append(w.so.verdicts, vs...)
	if w.left--; w.left == 0 {
		w.ch <- w.so
		delete(s.wait, id)
	}
}
