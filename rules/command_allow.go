package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/windows"
)

// ErrRefused is wrapped by errors that say why a limit or a grant is refused for what the key has already.
var ErrRefused = errors.New("rules: refused")

const (
	// keepsID bounds the time for which the id of a limit or a grant is remembered, from below: who sells grants sends what a payment
	// came to for days, until it is answered.
	keepsID = 7 * event.Day

	// MaxAllowanceID bounds an id's length.
	MaxAllowanceID = 128
)

// allows reports whether the command gives a limit or a grant, or ends one.
func (c *Command) allows() bool { return c.Kind == CommandLimit || c.Kind == CommandGrant }

// limitNamed returns the limit that a name means to commands that give limits and grants: that of the rule if it has
// one, or rule/limit.
func limitNamed(s *Set, name string) (*Limit, error) {
	var of []string
	for _, l := range s.Limits {
		switch {
		case l.Name == name:
			return l, nil
		case l.Rule.Name == name:
			of = append(of, l.Name)
		}
	}
	if len(of) > 0 {
		return nil, fmt.Errorf("%s has several limits: name one, such as %s", name, of[0])
	}
	for _, r := range s.all {
		if r.Name == name {
			return nil, fmt.Errorf("%s has no window in a key's state, so it takes no limits and no grants by command", name)
		}
	}
	return nil, fmt.Errorf("no rule, and no limit as rule/limit, is called %q", name)
}

// Plan is a command for a limit or a grant as it is to be carried out on a key's state: with the limit's own
// name, and the time until which it holds. repeated says that the state has it already, under its id. Errors that wrap
// ErrRefused are about the state, others about the command. moment is the command's time.
func (c *Command) Plan(p *Stepper, state, key []byte) (plan Command, repeated bool, err error) {
	cmd := *c
	l, err := limitNamed(p.set, cmd.Rule)
	if err != nil {
		return cmd, false, err
	}
	p.begin()
	old := p.read(state)
	cmd.Rule = l.Name
	cmd.PeriodEnd = cmd.PeriodEnd || cmd.Kind == CommandGrant && cmd.Until == event.NoTime && hasPeriodEnd(l)
	if err := goesWith(&cmd, l, p.key(key)); err != nil {
		return cmd, false, err
	}
	moment := max(cmd.At, old.Latest)
	if cmd.PeriodEnd {
		_, cmd.Until = l.Window.Bounds(p.take(p.find(&old, l)), moment)
		cmd.PeriodEnd = false
	}
	if known := knownAs(&p.keySection, &cmd); known != nil { // it may be over, and is answered as the first time
		cmd.Until = known.Until
	} else if !cmd.Ends && cmd.Until != event.NoTime && cmd.Until <= moment {
		return cmd, false, fmt.Errorf("until %s: that is over by the key's latest time, %s", cmd.Until, moment)
	}
	repeated, err = allowOwn(&p.keySection, l, &cmd, moment)
	return cmd, repeated, err
}

// goesWith reports what of a command does not go together with a limit, whatever the key has.
func goesWith(cmd *Command, l *Limit, key []event.Dim) error {
	r := l.Rule
	if !r.Shape.fits(key) {
		return fmt.Errorf("%s counts by %s: name exactly these dimensions", r.Name, strings.Join(r.Shape.Dims, ", "))
	}
	if len(cmd.ID) > MaxAllowanceID {
		return fmt.Errorf("an id has at most %d bytes", MaxAllowanceID)
	}
	grant := cmd.Kind == CommandGrant
	switch {
	case cmd.Ends:
		return nil
	case l.Window.Kind.HasRate():
		return fmt.Errorf("%s is a %v: it has a rate, and takes no limits and no grants by command", l.Name, l.Window.Kind)
	case l.Shadow:
		return fmt.Errorf("%s is a candidate: no command is about it", l.Name)
	case cmd.Amount < 0 || grant && cmd.Amount == 0:
		return errors.New("an amount is above zero")
	case r.Count != CountSum && !cmd.Amount.Whole():
		return fmt.Errorf("%s counts whole numbers, not %v", l.Name, cmd.Amount)
	case l.Strict:
		return fmt.Errorf("%s is strict: it takes no limits and no grants by command", l.Name)
	case cmd.PeriodEnd && !hasPeriodEnd(l):
		return fmt.Errorf("a %v window has no end of a period: say until when, or for how long", l.Window.Kind)
	case grant && cmd.Until == event.NoTime && !cmd.PeriodEnd:
		return fmt.Errorf("a grant under a %v window needs an end: say until when, or for how long", l.Window.Kind)
	}
	return nil
}

// hasPeriodEnd reports whether a grant under the limit may hold until the end of the key's window.
func hasPeriodEnd(l *Limit) bool {
	return !l.Window.Kind.Slides() && !l.Window.Kind.HasRate() && l.Window.Overlap() == 0
}

// knownAs is the allowance that has a command's id; nil if nobody knows that id.
func knownAs(x *keystate.KeySection, cmd *Command) *allowance {
	if cmd.Ends || cmd.ID == "" {
		return nil
	}
	for i := range x.Allow {
		if a := &x.Allow[i]; string(a.ID) == cmd.ID {
			return a
		}
	}
	return nil
}

// asked is a hash of what a command asks for, but for its id and who gives it.
func (c *Command) asked() uint64 {
	return xxhash.Sum64String(fmt.Sprintf("%d\x00%s\x00%d\x00%s", c.Kind, c.Rule, c.Amount, c.Asked))
}

// allowOwn adds a limit or a grant to the key's own section, or ends one. l is nil where no rule has the limit any
// more: then it waits, as other allowances of such limits. It changes nothing where it is a repetition or refused.
func allowOwn(x *keystate.KeySection, l *Limit, cmd *Command, moment event.Micros) (repeated bool, err error) {
	x.Any = true
	if cmd.Ends {
		return false, endAllowance(x, cmd, moment)
	}
	grant := cmd.Kind == CommandGrant
	if known := knownAs(x, cmd); known != nil {
		if known.Asked != cmd.asked() {
			return false, fmt.Errorf("%w: the id %s was given for something else", ErrRefused, cmd.ID)
		}
		return true, nil
	}
	list := slices.DeleteFunc(x.Allow, func(a allowance) bool { return !a.Holds(moment) && a.Kept <= moment })
	if x.Allow = list; len(list) == 0 && len(x.Exempt) >= keystate.MaxExemptions {
		return false, fmt.Errorf("%w: the key has %d exemptions, and no room beside them", ErrRefused, keystate.MaxExemptions)
	}
	holds, granted := 0, event.Decimal(0)
	for i := range list {
		a := &list[i]
		if !a.Holds(moment) || !grant && !a.Grant && string(a.Rule) == cmd.Rule { // the latter is replaced
			continue
		}
		holds++
		if a.Grant && string(a.Rule) == cmd.Rule {
			granted = granted.Plus(a.Amount)
		}
	}
	switch {
	case holds >= keystate.MaxAllowances:
		return false, fmt.Errorf("%w: the key has %d limits and grants in force, which is the most: end one", ErrRefused, holds)
	case len(list) >= keystate.MaxRemembered:
		return false, fmt.Errorf("%w: the key had %d limits and grants in a week, which is the most", ErrRefused, len(list))
	case grant && l != nil:
		err = mayGrant(l, granted, cmd.Amount)
	case l != nil:
		err = mayReach(l, cmd.Amount, granted)
	}
	if err != nil {
		return false, err
	}
	if !grant {
		endLimit(x, cmd.Rule, moment)
	}
	note := cmd.Giver.note()
	x.Allow = append(x.Allow, allowance{
		Grant: grant, Until: cmd.Until, Kept: keystate.Later(moment, keepsID), Asked: cmd.asked(), Amount: cmd.Amount,
		Rule: []byte(cmd.Rule), ID: []byte(cmd.ID), Note: note,
	})
	return false, nil
}

// mayGrant reports why an amount may not be granted beside what is.
func mayGrant(l *Limit, granted, amount event.Decimal) error {
	sum := granted.Plus(amount)
	if l.GrantsMost > 0 && sum > l.GrantsMost {
		return fmt.Errorf("%w: grants in force add up to at most %v under %s, and %v are", ErrRefused, l.GrantsMost, l.Name, granted)
	}
	return mayReach(l, l.largestLive(), sum)
}

// mayReach reports why a limit with what is granted on top is more than the limit's window can tell.
func mayReach(l *Limit, limit, granted event.Decimal) error {
	sum := limit.Plus(granted)
	if l.Rule.Count == CountDistinct && !l.Window.Estimate && sum > windows.ExactDistinct*event.One {
		return fmt.Errorf("%w: %s counts at most %d distinct values: raise the rule's own limit, too", ErrRefused, l.Name, windows.ExactDistinct)
	}
	return nil
}

// endAllowance ends a key's own limit, or the grant with the command's id.
func endAllowance(x *keystate.KeySection, cmd *Command, moment event.Micros) error {
	if cmd.Kind == CommandLimit {
		if !endLimit(x, cmd.Rule, moment) {
			return fmt.Errorf("%w: the key has no limit of its own by a command under %s", ErrRefused, cmd.Rule)
		}
		return nil
	}
	for i := range x.Allow {
		a := &x.Allow[i]
		if a.Grant && string(a.ID) == cmd.ID && string(a.Rule) == cmd.Rule && a.Holds(moment) {
			a.Ended, a.Kept, a.Note = true, max(a.Kept, keystate.Later(moment, keepsID)), nil
			return nil
		}
	}
	return fmt.Errorf("%w: the key has no grant %s in force under %s", ErrRefused, cmd.ID, cmd.Rule)
}

// endLimit ends the limits of its own that a key has under a limit; false if there are none.
func endLimit(x *keystate.KeySection, rule string, moment event.Micros) (ended bool) {
	for i := range x.Allow {
		if a := &x.Allow[i]; !a.Grant && a.Holds(moment) && string(a.Rule) == rule {
			a.Ended, a.Note, ended = true, nil, true
		}
	}
	return ended
}

// judgeAllowed judges a limit's counts by what a command has given or ended, as after a change of rules: it ends what
// the new limit would not have issued, and issues quotas. It issues no penalty, which might have been served.
func judgeAllowed(p *Stepper, dst []byte, sec keystate.Section, l *Limit, in *Input, res *Result) []byte {
	p.window = append(p.window[:0], p.take(sec)...)
	p.rejudge(l, in, in.At, true, true, res)
	return p.rejudged(dst, l, res)
}
