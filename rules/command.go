package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/verdict"
)

// CommandKind selects a command's effect.
type CommandKind uint8

// What commands do to one key. A command is about one rule, or one limit (rule/limit), or about
// all.
const (
	CommandBlock   CommandKind = iota + 1 // block the key, whatever it counted, from At until Until: a verdict named ManualRule
	CommandUnblock                        // clear what is in force; what was counted stays, so the next event may trigger another verdict
	CommandReset                          // clear what is in force, and forget what was counted
	CommandExempt                         // clear what is in force, and judge nothing until Until; an Until that is over ends an exemption
	CommandForget                         // clear what is in force, and forget all of the key; the state is empty then
	CommandLimit                          // give the key a limit of its own until Until, or end it; judged at once
	CommandGrant                          // add an amount to the key's limit until Until, or end that; judged at once
)

// Command is one command on one key.
type Command struct {
	Kind  CommandKind
	Rule  string       // "": all; of CommandBlock: none
	At    event.Micros // when it was given
	Until event.Micros // of CommandBlock and CommandExempt; of CommandLimit and CommandGrant NoTime is no end
	Cause verdict.Cause
	Giver Giver // of CommandExempt, CommandLimit and CommandGrant: who gave it, and why

	// Of CommandLimit and CommandGrant, which Plan completes.
	Amount    event.Decimal // the limit, 0 is unlimited; or what is granted
	ID        string        // the same one again does nothing
	Ends      bool          // it ends the key's limit, or the grant with the ID
	PeriodEnd bool          // until the end of the window in which the key stands; Until is not looked at
	Asked     string        // until when, in the words of who asked: the same again for the same ID
}

// manualLimit stands for it.
var manualLimit = &Limit{Name: ManualRule, Rule: &Rule{Name: ManualRule, APIs: []string{"*"}, Then: Then{Action: verdict.ActBlock}}}

// Command applies a command to a key's state, as Step applies an event. It counts nothing, and
// moves no time.
func (p *Stepper) Command(dst, state, key []byte, cmd Command) ([]byte, Result) {
	p.begin()
	old := p.read(state)
	cmd.At = min(max(cmd.At, event.MinTime), event.MaxTime)
	latest := old.Latest
	if latest == event.NoTime {
		latest = cmd.At
	}
	start := len(dst)
	res := Result{SpentAt: max(latest, p.ids.Spent(&old.IDs, old.Latest))}
	dst = keystate.AppendHeader(dst, latest)
	dst = p.ids.AppendTo(dst, old.IDs, old.Latest, latest, 0, false)
	moment := max(cmd.At, latest)
	gives := p.commandOwn(&cmd, key, moment)
	dst = p.keySection.AppendSection(dst)
	res.SpentAt = max(res.SpentAt, p.keySection.Spent())
	dst = p.each(dst, &old, key, latest, &res, func(dst []byte, sec keystate.Section, l *Limit) []byte {
		if gives && l.Name == cmd.Rule {
			return judgeAllowed(p, dst, sec, l, &Input{Key: key, At: moment, Cause: cmd.Cause}, &res)
		}
		if cmd.Kind == CommandBlock || cmd.allows() || cmd.Rule != "" && cmd.Rule != l.Rule.Name && cmd.Rule != l.Name {
			return p.keep(dst, sec, l, key, latest, &res)
		}
		window := p.take(sec)
		p.clearAll(l, window, key, moment)
		if l.Quota && (cmd.Kind == CommandReset || cmd.Kind == CommandExempt) {
			p.leftOver(l, moment)
		}
		if cmd.Kind == CommandReset || cmd.Kind == CommandForget {
			if l.beside != nil && cmd.Kind == CommandReset {
				return keystate.AppendSection(dst, l.Hash, nil, nil) // or it would begin with the live limit's counts again
			}
			return dst
		}
		res.SpentAt = max(res.SpentAt, l.spent(&p.extras), l.Window.Spent(window))
		return p.appendSection(dst, l.Hash, window)
	})
	if cmd.Kind == CommandForget {
		dst = dst[:start]
		res.SpentAt = event.NoTime
	}
	p.sortChanges()
	res.Changes = p.changes
	return dst, res
}

// commandOwn applies a command to the key's own section. gives says that it has given or ended a limit or a grant.
func (p *Stepper) commandOwn(cmd *Command, key []byte, moment event.Micros) (gives bool) {
	m := &p.keySection.Manual
	p.keySection.Any = true
	all := cmd.Rule == "" || cmd.Rule == ManualRule
	switch cmd.Kind {
	case CommandBlock:
		until := max(cmd.Until, moment)
		m.Had, m.Block = true, keystate.Block{Since: moment, Until: until, Name: []byte(ManualRule), Partition: cmd.Cause.Partition, Offset: cmd.Cause.Offset, ID: []byte(cmd.Cause.ID)}
		v := manualLimit.verdictOf(&m.Block, p.key(key))
		p.change(&v, -1)
	case CommandLimit, CommandGrant:
		l, _ := limitNamed(p.set, cmd.Rule) // nil: it waits until the rules have it again
		g := &p.Gave
		g.Repeated, g.Err = allowOwn(&p.keySection, l, cmd, moment)
		p.allow = p.keySection.Allow
		return g.Err == nil && !g.Repeated
	case CommandExempt:
		p.exemptOwn(cmd, moment)
		fallthrough
	case CommandUnblock, CommandReset, CommandForget:
		if m.Had && all && moment < m.Block.Until {
			p.clear(manualLimit, m, nil, key, moment, -1)
		}
		if all {
			m.Had = false
		}
		if cmd.Kind == CommandForget {
			p.keySection.Clear()
		}
	}
	return false
}

// each appends the sections of the set's limits as f does; others as keep does.
func (p *Stepper) each(dst []byte, old *keystate.Key, key []byte, latest event.Micros, res *Result, f func([]byte, keystate.Section, *Limit) []byte) []byte {
	for sections := old.Sections; len(sections) > 0; {
		sec, rest, ok := keystate.Cut(sections)
		if !ok {
			break // not reached with a checked state
		}
		sections = rest
		sec.Version = old.Version
		l, sec := p.limitOfSection(sec)
		switch {
		case sec.Hash() == keystate.KeyHash:
		case l == nil:
			p.retire(sec, key, latest)
		default:
			dst = f(dst, sec, l)
		}
	}
	return dst
}

// clearAll clears what a limit has in force.
func (p *Stepper) clearAll(l *Limit, window, key []byte, moment event.Micros) {
	for _, s := range []*keystate.Slot{&p.extras.Live, &p.extras.Candidate} {
		if s.Had && moment < s.Block.Until {
			p.clear(l, s, window, key, moment, l.Index)
			s.Had, s.Ended = false, moment
		}
		s.Over()
	}
	p.Fuses.forget(l, key)
}

// NoteState tells the Stepper's fuses of all that a key's state has in force: after a takeover.
func (p *Stepper) NoteState(state, key []byte) {
	if p.Fuses == nil {
		return
	}
	p.begin()
	old := p.read(state)
	var res Result
	p.each(nil, &old, key, old.Latest, &res, func(_ []byte, sec keystate.Section, l *Limit) []byte {
		p.take(sec)
		if b := &p.extras.Live.Block; p.extras.Live.Had && !b.Shadow {
			p.Fuses.Note(l.Rule, key, b.Until)
		}
		return nil
	})
}
