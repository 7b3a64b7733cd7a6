package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

// TestScenarios tells the stories in testdata/scenarios: rules, and a timeline of events with
// what is expected to come of each. After a change that is meant to change them:
// go test -run TestScenarios -rewrite
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScenario(t, file) })
	}
}

func runScenario(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := playScenario(t, file, 0, string(text))
	testrun.Golden(t, file, out)
}

// playScenario plays a scenario that begins behind a line of a file, and returns it with what happened.
func playScenario(t *testing.T, file string, line int, text string) string {
	t.Helper()
	sc, err := parseScenario(text)
	if err != nil {
		t.Fatalf("%s:%d: %v", file, line, err)
	}
	play, err := newPlay(file, sc)
	if err != nil && (len(sc.steps) == 0 || sc.steps[0].verb != "check") {
		t.Fatalf("%s:%d: %v", file, line, err)
	}
	out := strings.Join(sc.header, "\n") + "\n---\n"
	for _, step := range sc.steps {
		got, err := play.step(&step)
		if err != nil {
			t.Fatalf("%s:%d: %v", file, line+step.lineNum, err)
		}
		if diff := cmp.Diff(step.want, got); diff != "" && !testrun.Rewriting() {
			t.Errorf("%s:%d: %s\n(- expected, + happened; if it should happen, write it: go test ./rules -run %s -rewrite)\n%s",
				file, line+step.lineNum, step.line, topTest(t), diff)
		}
		for _, line := range slices.Concat(step.before, []string{step.line}) {
			out += line + "\n"
		}
		for _, line := range got {
			out += "    " + line + "\n"
		}
	}
	return out
}

// play is a scenario on stage: the rules, and the state of every key.
type play struct {
	*scenario
	file    string
	set     *Set
	matcher *Matcher
	stepper *Stepper
	states  map[string][]byte          // by the key's text
	last    map[string]verdict.Verdict // by record key
	wrong   error                      // the rules don't compile
}

func newPlay(file string, sc *scenario) (*play, error) {
	p := &play{scenario: sc, file: file, states: map[string][]byte{}, last: map[string]verdict.Verdict{}}
	return p, p.load(sc.rules)
}

// load takes rules, in the place of those that there were.
func (p *play) load(text string) error {
	var spec strings.Builder
	spec.WriteString("apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: scenario}\nspec:\n")
	for line := range strings.Lines(text) {
		spec.WriteString("  " + line)
	}
	set, err := Compile(p.file, []byte(spec.String()))
	if err != nil {
		p.wrong = err
		return err
	}
	old := p.set
	p.set, p.matcher, p.stepper = set, set.NewMatcher(), set.NewStepper()
	p.stepper.Fuses = set.NewFuses()
	if old != nil {
		p.stepper.After(old)
	}
	return nil
}

func (p *play) step(step *scenarioStep) ([]string, error) {
	switch step.verb {
	case "check":
		return p.check(), nil
	case "change":
		return p.change(step.rest)
	case "record":
		return p.record(step)
	}
	r, err := step.parseEvent()
	switch {
	case err != nil:
		return nil, err
	case step.verb == "explain":
		return p.explain(&r.event), nil
	case step.verb == "judge":
		return p.judge(&r.event), nil
	case step.verb == "covers":
		return p.covers(&r.event), nil
	case step.verb == "limit" || step.verb == "grant":
		return p.allow(step.verb, &r), nil
	case step.verb != "at":
		return p.command(step.verb, &r), nil
	}
	var out []string
	for i := range r.times {
		e := r.event.Clone()
		number(&e, i)
		e.Time += event.Micros(i) * r.every
		broker := event.NoTime
		if r.broker != event.NoTime {
			broker = e.Time + r.broker
		}
		out = append(out, p.event(e, broker)...)
	}
	return counted(out), nil
}

// number writes an event's number where it has a '#'.
func number(e *event.Event, i int) {
	n := strconv.Itoa(i + 1)
	for _, s := range []*string{&e.UID, &e.ID, &e.Refunds} {
		*s = strings.ReplaceAll(*s, "#", n)
	}
	for j := range e.Attrs {
		v := &e.Attrs[j].Value
		v.Text = strings.ReplaceAll(v.Text, "#", n)
	}
}

func (p *play) event(e event.Event, broker event.Micros) []string {
	at, ok := p.set.EventTime(&e, broker)
	if !ok {
		return []string{"too old"}
	}
	works := p.matcher.Match(&e, at)
	var out []string
	for _, skip := range p.matcher.Skipped {
		out = append(out, fmt.Sprintf("%s skips it: %s", skip.Rule.Name, skip.Reason))
	}
	if v := p.set.Vocabulary(); v != nil {
		for _, m := range v.NewCheck().Event(nil, &e) {
			out = append(out, fmt.Sprintf("it contradicts the vocabulary: %s %s", m.What, m.Name))
		}
	}
	if len(works) == 0 && len(out) == 0 {
		return []string{"matches no rule"}
	}
	for _, w := range works {
		active := len(p.states)
		if p.states[string(w.Key)] == nil {
			active++
		}
		next, res := p.stepper.Step(nil, p.states[string(w.Key)], Input{
			Key: w.Key, Hits: w.Hits, At: at, ID: e.ID, Cause: verdict.Cause{ID: e.ID}, Active: active,
		})
		p.states[string(w.Key)] = next
		for _, r := range res.Blown {
			out = append(out, r.Name+"'s fuse has blown")
		}
		if res.Repeat {
			out = append(out, "repeat")
		}
		if res.Unknown {
			out = append(out, "takes back nothing that is known")
		}
		if res.Late > 0 {
			out = append(out, "late")
		}
		for _, v := range res.Changes {
			out = append(out, p.tell(&v))
		}
		out = append(out, p.left(string(w.Key))...)
	}
	return out
}

// left tells what the stepper says is left.
func (p *play) left(key string) (out []string) {
	dims, _ := event.ParseKey([]byte(key))
	for _, l := range p.stepper.Left() {
		v := l.Verdict(dims)
		p.last[string(verdict.AppendRecordKey(nil, &v))] = v
		line := fmt.Sprintf("%s %s: %v of %v left until %s", v.Rule, event.FormatKey(v.Key), max(v.Limit-v.Count, 0), v.Limit, p.clock(v.Until, v.Since))
		if l.Over() {
			line = fmt.Sprintf("%s %s: nothing is known of what is left", v.Rule, event.FormatKey(v.Key))
		}
		out = append(out, line)
	}
	return out
}

// tell writes a verdict as a sentence, and keeps it as the last one under its record key.
func (p *play) tell(v *verdict.Verdict) string {
	kept := *v
	kept.Key, kept.APIs = slices.Clone(v.Key), slices.Clone(v.APIs)
	p.last[string(verdict.AppendRecordKey(nil, v))] = kept
	what := v.State.String()
	if v.State == verdict.Warn {
		what += " " + v.Step
	}
	if v.Mode == verdict.Shadow {
		what += " (shadow)"
	}
	if v.Action != verdict.ActBlock {
		what += " (" + v.Action.String() + ")"
	}
	if v.State == verdict.Clear {
		line := fmt.Sprintf("%s %s %s: %v of %v, at %s", v.Rule, what, event.FormatKey(v.Key), v.Count, v.Limit, p.clock(v.Since, v.Since))
		if v.Until != v.Since {
			line += ", until " + p.clock(v.Until, v.Since) // never
		}
		return line
	}
	return fmt.Sprintf("%s %s %s: %v of %v, since %s, until %s",
		v.Rule, what, event.FormatKey(v.Key), v.Count, v.Limit, p.clock(v.Since, v.Since), p.clock(v.Until, v.Since))
}

// key is the event's key of a shape.
func (p *play) key(shape *KeyShape, e *event.Event) string {
	var dims []event.Dim
	for _, name := range shape.Dims {
		value, _ := e.Dim(name)
		dims = append(dims, event.Dim{Name: name, Value: value})
	}
	return event.FormatKey(dims)
}

func (p *play) explain(e *event.Event) []string {
	var out []string
	for _, shape := range p.set.Shapes {
		key := p.key(shape, e)
		for _, x := range p.set.Explain(p.states[key], []byte(key), e.Time, e.API) {
			line := fmt.Sprintf("%s: %v of %v from %s to %s", x.Rule, x.Count, x.Limit, p.clock(x.From, e.Time), p.clock(x.Until, e.Time))
			if x.FreesAt != event.NoTime {
				line += ", below it at " + p.clock(x.FreesAt, e.Time)
			}
			if x.Tier > 0 {
				line += fmt.Sprintf(", tier %d", x.Tier)
			}
			if x.Exempt {
				line += ", exempt"
			}
			if x.Verdict != nil {
				line += fmt.Sprintf("; %s since %s, until %s", x.Verdict.State, p.clock(x.Verdict.Since, e.Time), p.clock(x.Verdict.Until, e.Time))
			}
			out = append(out, line)
		}
	}
	return out
}

// clock writes a time for people: without the date when it is that of near.
func (p *play) clock(at, near event.Micros) string {
	t := at.Time().In(p.zone)
	layout := "15:04:05.999999 MST"
	if t.Format("2006-01-02") != near.Time().In(p.zone).Format("2006-01-02") {
		layout = "2006-01-02 " + layout
	}
	return t.Format(layout)
}

// counted writes equal lines that follow each other as one.
func counted(lines []string) []string {
	var out []string
	for i := 0; i < len(lines); {
		n := 1
		for i+n < len(lines) && lines[i+n] == lines[i] {
			n++
		}
		if n > 1 {
			out = append(out, fmt.Sprintf("%s, %d times", lines[i], n))
		} else {
			out = append(out, lines[i])
		}
		i += n
	}
	return out
}
