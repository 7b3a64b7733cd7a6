package ruletest

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/engine"
	"github.com/tallygate/tallygate/internal/tools/input"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// Result is the result of one test.
type Result struct {
	Test     *Test
	Failures []Failure
	Took     time.Duration
}

// Failure is one expectation that did not hold.
type Failure struct {
	Line      int
	What      string   // the moment, the key and the API
	Want, Got string   // in the same words
	Story     []string // the verdicts on the keys until then, and their counts
	Why       []string // why events did not count, and what is in force instead
}

// Suite is the rules of one file of tests, compiled.
type Suite struct {
	File  *File
	Reach Reach
	sets  []*rules.Set
}

// RuleFiles reads the rules that tests name, and what these name.
type RuleFiles struct {
	Read   func(path string) ([]byte, error)
	Beside func(path string) func(name string) ([]byte, error)
}

// OnDisk are the files where they are.
var OnDisk = RuleFiles{Read: os.ReadFile, Beside: input.Beside}

// NewSuite compiles a file's rules. Its error lists all mistakes in them and in the file, including
// those of Load. It ends with ctx.
func NewSuite(ctx context.Context, f *File, from RuleFiles) (*Suite, error) {
	s := &Suite{File: f, Reach: newReach()}
	var errs []error
	for i, path := range f.RuleFiles {
		src, err := from.Read(path)
		if err != nil {
			f.doc.Fail(f.ruleFiles[i], "the path is relative to this file", "rule_files: %v", err)
			continue
		}
		set, err := rules.CompileUntil(path, src, from.Beside(path), func() error { return context.Cause(ctx) })
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.sets = append(s.sets, set)
		s.Reach.add(set)
	}
	if len(errs) == 0 && len(s.sets) == len(f.RuleFiles) {
		s.verify()
		s.verifyEvents()
	}
	return s, errors.Join(append([]error{f.doc.Err()}, errs...)...)
}

// Run runs one test. When ctx ends it stops, and what it returns is no result.
func (s *Suite) Run(ctx context.Context, t *Test) Result {
	began := time.Now()
	p := play{suite: s, test: t}
	for _, set := range s.sets {
		p.engines = append(p.engines, engine.New(set))
	}
	order := make([]int, len(t.Expect))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t.Expect[a].At, t.Expect[b].At) })
	next := 0
	failures := make([]*Failure, len(t.Expect))
	for _, i := range order {
		for ctx.Err() == nil && next < len(t.Events) && t.Events[next].Broker <= t.Expect[i].At {
			p.apply(&t.Events[next])
			next++
		}
		failures[i] = p.judge(&t.Expect[i])
	}
	for ; ctx.Err() == nil && next < len(t.Events); next++ { // for the coverage
		p.apply(&t.Events[next])
	}
	s.why(ctx, t, failures)
	r := Result{Test: t, Took: time.Since(began)}
	for _, f := range failures {
		if f != nil {
			r.Failures = append(r.Failures, *f)
		}
	}
	return r
}

// play is one run of a test.
type play struct {
	suite   *Suite
	test    *Test
	engines []*engine.Engine
	out     engine.Outcome
	changes []verdict.Verdict
}

func (p *play) apply(e *Event) {
	for _, one := range p.engines {
		one.Apply(&e.Event, e.Broker, verdict.Cause{Offset: int64(e.Line)}, &p.out)
		p.suite.Reach.note(&p.out)
		p.changes = append(p.changes, p.out.Changes...)
	}
}

// judge returns nil if the expectation holds.
func (p *play) judge(x *Expect) *Failure {
	if f := p.judgeLeft(x); f != nil || x.Want == "" {
		return f
	}
	var best *engine.Held
	for _, one := range p.engines {
		for _, h := range one.Decide(&x.Who, x.At) {
			if x.about(h) && (best == nil || verdict.Stronger(&h.Verdict, &best.Verdict)) {
				best = h
			}
		}
	}
	want, got := x.want(p), p.got(x, best)
	if want == got {
		return nil
	}
	return &Failure{Line: x.Line, What: p.what(x), Want: want, Got: got, Story: p.story(x), Why: p.elsewhere(x)}
}

// judgeLeft returns nil if as much is left as is expected, or nothing is expected of it.
func (p *play) judgeLeft(x *Expect) *Failure {
	if x.Left == "" {
		return nil
	}
	got := "nothing is counted by it"
	for _, one := range p.engines {
		for _, e := range one.Explain(p.keyOf(one.Set, x), "", x.At) {
			switch {
			case e.Rule != x.Rule:
			case e.Bound() == rules.Unlimited:
				got = "unlimited by " + e.Rule
			default:
				got = "left " + e.Left.String() + " by " + e.Rule
			}
		}
	}
	want := "left " + x.Left + " by " + x.Rule
	if want == got {
		return nil
	}
	return &Failure{Line: x.Line, What: p.what(x), Want: want, Got: got, Story: p.story(x), Why: p.elsewhere(x)}
}

// keyOf is the expectation's key under its rule; nil when the set has no such rule.
func (p *play) keyOf(set *rules.Set, x *Expect) (key []event.Dim) {
	for _, l := range set.Limits {
		if l.Name != x.Rule {
			continue
		}
		for _, name := range l.Rule.Shape.Dims {
			key = append(key, event.Dim{Name: name, Value: engine.Dimension(&x.Who, name)})
		}
	}
	return key
}

// about reports whether the expectation concerns a verdict in force.
func (x *Expect) about(h *engine.Held) bool {
	switch {
	case x.Rule != "" && h.Rule != x.Rule:
		return false
	case h.State == verdict.Warn:
		return x.Want == "warn"
	case x.Want == "warn":
		return false
	}
	return (h.Mode == verdict.Shadow) == x.Shadow
}

// want and got describe a verdict in the same words, with the fields that the expectation names.
func (x *Expect) want(p *play) string {
	if x.Want == "none" {
		return "none"
	}
	out := x.Want
	if x.Shadow {
		out += " (shadow)"
	}
	for _, part := range []struct{ name, value string }{
		{" by ", x.Rule}, {" since ", p.clock(x.Since)}, {" until ", p.clock(x.Until)}, {", count ", x.Count}, {", limit ", x.Limit},
	} {
		if part.value != "" {
			out += part.name + part.value
		}
	}
	return out
}

func (p *play) got(x *Expect, h *engine.Held) string {
	if h == nil {
		return "none"
	}
	y := Expect{Want: h.Action.String(), Shadow: x.Shadow, Since: event.NoTime, Until: event.NoTime}
	if h.State == verdict.Warn {
		y.Want = "warn"
	}
	unexpected := x.Want == "none"
	if x.Rule != "" || unexpected {
		y.Rule = h.Rule
	}
	if x.Since != event.NoTime || unexpected {
		y.Since = h.Since
	}
	if x.Until != event.NoTime || unexpected {
		y.Until = h.Until
	}
	if x.Count != "" {
		y.Count = h.Count.String()
	}
	if x.Limit != "" {
		y.Limit = h.Limit.String()
	}
	return y.want(p)
}
