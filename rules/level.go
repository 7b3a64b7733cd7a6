package rules

import (
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/windows"
)

// Level is the part of a key's state about its strict limits.
type Level struct {
	Latest event.Micros // the latest time that was counted; NoTime of an empty state
	Limits []LimitLevel // that the key has met
}

// LimitLevel is the count under one strict limit.
type LimitLevel struct {
	Limit *Limit
	Steps []windows.Step // of a window: how its count falls behind the Level's Latest
	Level event.Decimal  // of a bucket: at the Level's Latest, rounded up
	Tier  uint64         // of the key's last event, as states name it; 0 for none

	window []byte
}

// Level reads a state that has passed Set.Check, or that a Step returned.
func (p *Stepper) Level(state []byte) (level Level) {
	key := p.read(state)
	level.Latest = key.Latest
	for rest := key.Sections; len(rest) > 0; {
		sec, more, ok := keystate.Cut(rest)
		if !ok {
			break // not reached with a checked state
		}
		rest, sec.Version = more, key.Version
		l := p.set.byHash.of(sec.Hash())
		if l == nil || !l.Strict {
			continue
		}
		_, sec = p.limitOfSection(sec)
		window := p.take(sec)
		level.Latest = max(level.Latest, l.Window.Latest(window))
		level.Limits = append(level.Limits, LimitLevel{Limit: l, Tier: p.extras.Tier, window: window})
	}
	for i := range level.Limits {
		one := &level.Limits[i]
		w := &one.Limit.Window
		if w.Kind.HasRate() {
			one.Level = w.CountAt(one.window, level.Latest)
		} else {
			one.Steps = w.Steps(one.window, level.Latest)
		}
	}
	return level
}

// StrictFor reports whether keys with these dimensions, which are sorted, have strict limits.
func (s *Set) StrictFor(dims []event.Dim) bool {
	return slices.ContainsFunc(s.Limits, func(l *Limit) bool { return l.Strict && l.Rule.Shape.fits(dims) })
}

// ExemptFrom returns until when commands exempt a key from all strict limits of its shape: the
// earliest of their ends, or NoTime. dims are the key's, sorted.
func (s *Set) ExemptFrom(dims []event.Dim, given ...Exemptions) event.Micros {
	until, any := event.MaxTime, false
	for _, l := range s.Limits {
		if !l.Strict || !l.Rule.Shape.fits(dims) {
			continue
		}
		own := event.NoTime
		for _, x := range given {
			own = max(own, x.until(l))
		}
		until, any = min(until, own), true
	}
	if !any {
		return event.NoTime
	}
	return until
}

// until returns the end of the last exemption from a limit; NoTime when there is none.
func (x Exemptions) until(l *Limit) event.Micros {
	until := event.NoTime
	for i := range x {
		if len(x[i].Rule) == 0 || string(x[i].Rule) == l.Rule.Name || string(x[i].Rule) == l.Name {
			until = max(until, x[i].Until)
		}
	}
	return until
}

// LimitOf returns the limit whose counters have this hash, or had it in a version of the rules that this one
// carries on; nil when there is none.
func (s *Set) LimitOf(hash SectionHash) *Limit { return s.byHash.of(hash) }

// StrictLimit returns the strict limit whose counters have this hash, or had it: see Limit.Names; nil when there
// is none.
func (s *Set) StrictLimit(hash SectionHash) *Limit {
	if l := s.byHash.of(hash); l != nil && l.Strict {
		return l
	}
	return nil
}
