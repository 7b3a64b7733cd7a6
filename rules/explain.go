package rules

import (
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/verdict"
	"github.com/tallygate/tallygate/windows"
)

// Explanation describes a key's position under one limit at one moment.
type Explanation struct {
	Rule      string           `json:"rule"`             // the limit's name: rule, or rule/limit
	Public    string           `json:"public,omitempty"` // the rule's public name
	Window    string           `json:"window"`
	Count     event.Decimal    `json:"count"`
	Limit     event.Decimal    `json:"limit"`                // of the key's tier; a bucket's burst; 0: unlimited, or closed
	Closed    bool             `json:"closed,omitempty"`     // the limit is 0: it allows nothing
	Left      event.Decimal    `json:"left"`                 // limit - count, 0 above the limit, and when it is unlimited
	Granted   event.Decimal    `json:"granted,omitempty"`    // how much of the limit commands have granted on top
	Tier      int              `json:"tier,omitempty"`       // the number of the tier, from 1; 0: none
	LimitFrom string           `json:"limit_from,omitempty"` // what tells the limit besides the rule: an attribute, overrides, or a command
	Estimated bool             `json:"estimated,omitempty"`  // the count is an estimate
	From      event.Micros     `json:"from"`                 // what the window covers: from From
	Until     event.Micros     `json:"until"`                // until before Until
	FreesAt   event.Micros     `json:"frees_at"`             // when the count falls below the limit; NoTime when it is below
	Frees     string           `json:"frees,omitempty"`      // what ends what is in force, or what lowers the count
	Exempt    bool             `json:"exempt,omitempty"`     // counted, not judged
	Mode      verdict.Mode     `json:"mode"`
	Latest    event.Micros     `json:"latest"`              // the key's latest event, of whatever rule; NoTime when it had none
	Counted   event.Micros     `json:"counted"`             // the latest event that this limit counted
	Reset     event.Micros     `json:"reset,omitempty"`     // up to when nothing counts any more, by `reset_on`; 0: no event did that
	Events    []string         `json:"events,omitempty"`    // ids of the events that triggered its verdicts
	Verdict   *verdict.Verdict `json:"verdict"`             // what is in force, without Seq; nil when nothing is
	Candidate *verdict.Verdict `json:"candidate,omitempty"` // the same of its candidate
}

// OwnLimit reports whether the key has a limit of its own, by overrides or a command, which no event changes.
func (x *Explanation) OwnLimit() bool {
	return x.LimitFrom == "overrides" || x.LimitFrom == FromCommand
}

// FromCommand is the LimitFrom of a limit that a command gave.
const FromCommand = "a command"

// Explain describes a key's position at now under every limit that counts by the key's dimensions, in the set's
// order; also under those that it has not met. A non-empty api leaves only rules that match or cover it. A block by a
// command comes first. state is as for Step.
func (s *Set) Explain(state, key []byte, now event.Micros, api string) []Explanation {
	return s.NewStepper().Explain(state, key, now, api)
}

// Explain is Set.Explain, and knows which keys the Stepper's caller exempts.
func (p *Stepper) Explain(state, key []byte, now event.Micros, api string) []Explanation {
	dims, err := event.ParseKey(key)
	if err != nil {
		return nil
	}
	p.begin()
	k := p.read(state)
	var out []Explanation
	if m := &p.keySection.Manual; m.Had && m.Block.Since <= now && now < m.Block.Until {
		v := manualLimit.verdictOf(&m.Block, dims)
		out = append(out, Explanation{
			Rule: ManualRule, From: v.Since, Until: v.Until, FreesAt: event.NoTime, Frees: "the command's end",
			Latest: k.Latest, Counted: event.NoTime, Verdict: &v,
		})
	}
	for _, l := range p.set.Limits {
		if !l.Rule.Shape.fits(dims) || api != "" && !l.Rule.concerns(api) {
			continue
		}
		window := p.take(p.find(&k, l))
		e := p.explain(l, window, key, dims, now)
		e.Latest = k.Latest
		p.dims = dims
		e.Exempt = p.isExempt(l, key, now)
		out = append(out, e)
	}
	return out
}

func (p *counts) explain(l *Limit, window, key []byte, dims []event.Dim, now event.Micros) Explanation {
	x := &p.extras
	f := facts{window: window, latest: max(now, l.Window.Latest(window))}
	p.limitAt(l, &f, key)
	tier := p.clock.tierAt(l, x.Tier, f.latest)
	e := Explanation{
		Rule:    l.Name,
		Public:  l.Rule.Public,
		Window:  l.Window.Kind.String(),
		Count:   l.Window.CountAt(window, now),
		Tier:    l.tierNumber(tier),
		FreesAt: event.NoTime,
		Mode:    l.Rule.Mode,
		Counted: l.Window.Latest(window),
	}
	e.Limit, e.Closed = shown(f.limit)
	if e.LimitFrom = l.source(x, tier, key, now); p.allow.own(l, f.latest) != nil {
		e.LimitFrom = FromCommand
	}
	if f.limit != Unlimited {
		e.Granted = p.allow.granted(l, f.latest)
	}
	if x.WasReset {
		e.Reset = x.Reset
	}
	e.Left = max(e.Limit-e.Count, 0)
	if l.Shadow {
		e.Mode = verdict.Shadow
	}
	e.Estimated = l.Window.Estimate && e.Count > windows.ExactDistinct*event.One
	e.From, e.Until = l.Window.Bounds(window, now)
	if f.limit != Unlimited && e.Count >= full(&l.Window, f.limit) && len(window) > 0 {
		var anew bool
		if e.FreesAt, anew = f.below(l); anew {
			e.Frees = "another limit by time"
		} else {
			e.Frees = l.Window.Kind.Frees()
		}
	}
	for _, s := range []*keystate.Slot{&x.Live, &x.Candidate} {
		if !s.Had {
			continue
		}
		if id := string(s.Block.ID); id != "" && !slices.Contains(e.Events, id) {
			e.Events = append(e.Events, id)
		}
		if s.Block.Since > now || now >= s.Block.Until {
			continue
		}
		v := l.verdictOf(&s.Block, dims)
		if s == &x.Candidate {
			e.Candidate = &v
			continue
		}
		if e.Verdict = &v; !l.Rule.Then.UntilReset {
			if e.Frees = "the penalty's end"; v.Until >= event.Forever {
				e.Frees = "a command"
			}
		}
	}
	return e
}

// concerns reports whether the rule counts api, or its verdicts cover it.
func (r *Rule) concerns(api string) bool {
	covers := func(pattern string) bool { return verdict.MatchAPI(pattern, api) }
	return slices.ContainsFunc(r.APIs, covers) ||
		slices.ContainsFunc(r.match.apis, func(a apiWeight) bool { return covers(a.pattern) })
}
