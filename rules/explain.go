package rules

import (
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Explanation says where a key stands under one limit at one moment.
type Explanation struct {
	Rule    string           `json:"rule"` // the limit's name: rule, or rule/limit
	Count   event.Decimal    `json:"count"`
	Limit   event.Decimal    `json:"limit"`
	From    event.Micros     `json:"from"`     // what the window covers: from From
	Until   event.Micros     `json:"until"`    // until before Until
	FreesAt event.Micros     `json:"frees_at"` // when the count falls below the limit; NoTime when it is below
	Mode    verdict.Mode     `json:"mode"`
	Latest  event.Micros     `json:"latest"`  // the key's latest event, of whatever rule; NoTime when it had none
	Verdict *verdict.Verdict `json:"verdict"` // what is in force, without Seq; nil when nothing is
}

// Explain says where a key stands at now under every limit that counts by the key's
// dimensions, in the set's order; also under those that it has not met. A non-empty api leaves only
// rules that match or cover it. state is as for Step.
func (s *Set) Explain(state, key []byte, now event.Micros, api string) []Explanation {
	dims, err := event.ParseKey(key)
	if err != nil {
		return nil
	}
	k, err := readState(state)
	if err != nil {
		return nil
	}
	var out []Explanation
	for _, l := range s.Limits {
		if !l.Rule.Shape.fits(dims) || api != "" && !l.Rule.concerns(api) {
			continue
		}
		e := l.explain(k.find(l.Hash), dims, now)
		e.Latest = k.latest
		out = append(out, e)
	}
	return out
}

func (l *Limit) explain(sec section, dims []event.Dim, now event.Micros) Explanation {
	e := Explanation{
		Rule:    l.Name,
		Count:   l.Window.CountAt(sec.window, now),
		Limit:   l.Limit,
		FreesAt: event.NoTime,
		Mode:    l.Rule.Mode,
	}
	e.From, e.Until = l.Window.Bounds(sec.window, now)
	if e.Count >= l.Limit {
		e.FreesAt = l.Window.Below(sec.window, l.Limit)
	}
	if sec.hasBlock && sec.block.since <= now && now < sec.block.until {
		v := sec.block.verdict(l, dims)
		e.Verdict = &v
	}
	return e
}

// find returns the section of a hash; one without a window when there is none.
func (k *keyState) find(hash SectionHash) section {
	for rest := k.sections; len(rest) > 0; {
		sec, next, err := nextSection(rest)
		if err != nil {
			break
		}
		if sec.hash == hash {
			return sec
		}
		rest = next
	}
	return section{hash: hash}
}

// fits reports whether dims are the shape's.
func (k *KeyShape) fits(dims []event.Dim) bool {
	return slices.EqualFunc(k.Dims, dims, func(name string, d event.Dim) bool { return name == d.Name })
}

// concerns reports whether the rule counts api, or its verdicts cover it.
func (r *Rule) concerns(api string) bool {
	covers := func(pattern string) bool { return verdict.MatchAPI(pattern, api) }
	return slices.ContainsFunc(r.APIs, covers) ||
		slices.ContainsFunc(r.match.apis, func(a apiWeight) bool { return covers(a.pattern) })
}
