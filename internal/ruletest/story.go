package ruletest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/internal/replay"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// what says when and about whom an expectation is.
func (p *play) what(x *Expect) string {
	return fmt.Sprintf("at %s, %s: %s", p.clock(x.At), event.FormatKey(dims(&x.Who)), x.Who.API)
}

// dims are all dimensions that an expectation names.
func dims(e *event.Event) []event.Dim {
	var out []event.Dim
	add := func(name string) {
		if v := replay.Dimension(e, name); v != "" {
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

// maxStory is how many verdict changes a failure tells of, the latest ones.
const maxStory = 8

// story tells what happened to the keys of an expectation, and where they stand.
func (p *play) story(x *Expect) []string {
	var out []string
	for _, v := range p.changes {
		if concerns(&v, &x.Who) {
			out = append(out, p.tell(&v))
		}
	}
	if n := len(out) - maxStory; n > 0 {
		out = append([]string{fmt.Sprintf("(%d earlier changes)", n)}, out[n:]...)
	}
	for _, engine := range p.engines {
		for _, shape := range engine.Set.Shapes {
			out = append(out, p.stand(engine, shape.Dims, x)...)
		}
	}
	if len(out) == 0 {
		out = append(out, "no rule counts or covers this API for such a key")
	}
	return out
}

// concerns reports whether a verdict's key is one of whom the expectation is about.
func concerns(v *verdict.Verdict, who *event.Event) bool {
	return !slices.ContainsFunc(v.Key, func(d event.Dim) bool { return replay.Dimension(who, d.Name) != d.Value })
}

func (p *play) tell(v *verdict.Verdict) string {
	kind := v.State.String()
	if v.State == verdict.Block {
		kind = v.Action.String()
	}
	if v.Mode == verdict.Shadow {
		kind += " (shadow)"
	}
	if v.State == verdict.Clear {
		return fmt.Sprintf("%s: %s clears %s", p.clock(v.Since), v.Rule, event.FormatKey(v.Key))
	}
	return fmt.Sprintf("%s: %s by %s on %s until %s, with %v of %v (event of line %d)",
		p.clock(v.Since), kind, v.Rule, event.FormatKey(v.Key), p.clock(v.Until), v.Count, v.Limit, v.Cause.Offset)
}

// stand tells what a key has counted at the expectation's moment.
func (p *play) stand(engine *replay.Engine, names []string, x *Expect) (out []string) {
	var key []event.Dim
	for _, name := range names {
		v := replay.Dimension(&x.Who, name)
		if v == "" {
			return nil
		}
		key = append(key, event.Dim{Name: name, Value: v})
	}
	for _, e := range engine.Explain(key, x.Who.API, x.At) {
		line := fmt.Sprintf("%s of %s has counted %v of %v", e.Rule, event.FormatKey(key), e.Count, e.Limit)
		if e.From != event.NoTime {
			line += fmt.Sprintf(" from %s to %s", p.clock(e.From), p.clock(e.Until))
		}
		out = append(out, line)
	}
	return out
}

// clock writes a time in the test's zone, "" for none.
func (p *play) clock(m event.Micros) string {
	if m == event.NoTime {
		return ""
	}
	return strings.Replace(m.Time().In(p.test.Zone).Format("2006-01-02T15:04:05.999999Z07:00"), "+00:00", "Z", 1)
}
