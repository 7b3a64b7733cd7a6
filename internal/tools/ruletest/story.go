package ruletest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/keytext"
	"github.com/tallygate/tallygate/internal/tools/engine"
	"github.com/tallygate/tallygate/verdict"
)

// what describes the expectation's moment, key and API.
func (p *play) what(x *Expect) string {
	who := dims(&x.Who)
	if len(who) == 0 {
		return fmt.Sprintf("at %s: %s", p.clock(x.At), x.Who.API)
	}
	return fmt.Sprintf("at %s, %s: %s", p.clock(x.At), keytext.Format(who), x.Who.API)
}

// dims returns the dimensions that an expectation names.
func dims(e *event.Event) []event.Dim {
	var out []event.Dim
	add := func(name string) {
		if v := engine.Dimension(e, name); v != "" {
			out = append(out, event.Dim{Name: name, Value: v})
		}
	}
	for _, a := range e.Attrs {
		add("attrs." + a.Name)
	}
	add("ip")
	add("uid")
	return out
}

// maxStory bounds the verdict changes of a failure: the latest ones.
const maxStory = 8

// story lists the verdict changes on the keys of an expectation, and their counts.
func (p *play) story(x *Expect) []string {
	var out []string
	for _, v := range p.changes {
		if concerns(&v, &x.Who) {
			out = append(out, p.describe(&v))
		}
	}
	if n := len(out) - maxStory; n > 0 {
		out = append([]string{fmt.Sprintf("(%d earlier changes)", n)}, out[n:]...)
	}
	for _, one := range p.engines {
		for _, shape := range one.Set.Shapes {
			out = append(out, p.counts(one, shape.Dims, x)...)
		}
	}
	if len(out) == 0 {
		out = append(out, "no rule counts this API by these dimensions, or blocks it")
	}
	return out
}

// concerns reports whether a verdict's key is one of the event's keys.
func concerns(v *verdict.Verdict, who *event.Event) bool {
	return !slices.ContainsFunc(v.Key, func(d event.Dim) bool { return engine.Dimension(who, d.Name) != d.Value })
}

func (p *play) describe(v *verdict.Verdict) string {
	kind := v.State.String()
	if v.State == verdict.Block {
		kind = v.Action.String()
	}
	if v.Mode == verdict.Shadow {
		kind += " (shadow)"
	}
	if v.State == verdict.Clear {
		return fmt.Sprintf("%s: %s clears %s", p.clock(v.Since), v.Rule, keytext.Format(v.Key))
	}
	return fmt.Sprintf("%s: %s by %s on %s until %s, with %v of %v (event of line %d)",
		p.clock(v.Since), kind, v.Rule, keytext.Format(v.Key), p.clock(v.Until), v.Count, v.Limit, v.Cause.Offset)
}

// counts lists what a key has counted at the expectation's moment.
func (p *play) counts(one *engine.Engine, names []string, x *Expect) (out []string) {
	var key []event.Dim
	for _, name := range names {
		v := engine.Dimension(&x.Who, name)
		if v == "" {
			return nil
		}
		key = append(key, event.Dim{Name: name, Value: v})
	}
	for _, e := range one.Explain(key, x.Who.API, x.At) {
		line := fmt.Sprintf("%s of %s has counted %v of %v", e.Rule, keytext.Format(key), e.Count, e.Limit)
		if e.From != event.NoTime {
			line += fmt.Sprintf(" from %s to %s", p.clock(e.From), p.clock(e.Until))
		}
		out = append(out, line)
	}
	return out
}

// clock formats a time in the test's zone; "" is none.
func (p *play) clock(m event.Micros) string {
	if m == event.NoTime {
		return ""
	}
	if m >= event.Forever {
		return "forever"
	}
	return strings.Replace(m.Time().In(p.test.Zone).Format("2006-01-02T15:04:05.999999Z07:00"), "+00:00", "Z", 1)
}
