package rules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
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
	if *rewrite && out != string(text) {
		if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
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
		if diff := cmp.Diff(step.want, got); diff != "" && !*rewrite {
			t.Errorf("%s:%d: %s\n(- expected, + happened)\n%s", file, line+step.lineNum, step.line, diff)
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
	set     *Set
	matcher *Matcher
	stepper *Stepper
	states  map[stateOf][]byte
	wrong   error // the rules don't compile
}

type stateOf struct {
	shape int
	key   string
}

func newPlay(file string, sc *scenario) (*play, error) {
	var spec strings.Builder
	spec.WriteString("apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: scenario}\nspec:\n")
	for line := range strings.Lines(sc.rules) {
		spec.WriteString("  " + line)
	}
	set, err := Compile(file, []byte(spec.String()))
	if err != nil {
		return &play{scenario: sc, wrong: err}, err
	}
	return &play{scenario: sc, set: set, matcher: set.NewMatcher(), stepper: set.NewStepper(), states: map[stateOf][]byte{}}, nil
}

func (p *play) step(step *scenarioStep) ([]string, error) {
	if step.verb == "check" {
		return p.check(), nil
	}
	r, err := step.parseEvent()
	switch {
	case err != nil:
		return nil, err
	case step.verb == "explain":
		return p.explain(&r.event), nil
	case step.verb != "at":
		return p.command(step.verb, &r), nil
	}
	var out []string
	for range r.times {
		broker := event.NoTime
		if r.broker != event.NoTime {
			broker = r.event.Time + r.broker
		}
		out = append(out, p.event(r.event, broker)...)
		r.event.Time += r.every
	}
	return counted(out), nil
}

func (p *play) event(e event.Event, broker event.Micros) []string {
	at, ok := p.set.EventTime(&e, broker)
	if !ok {
		return []string{"too old"}
	}
	works := p.matcher.Match(&e, at)
	if len(works) == 0 {
		return []string{"matches no rule"}
	}
	var out []string
	for _, w := range works {
		id := stateOf{w.Shape.Index, string(w.Key)}
		next, res := p.stepper.Step(nil, p.states[id], Input{
			Key: w.Key, Hits: w.Hits, At: at, ID: e.ID, Cause: verdict.Cause{ID: e.ID},
		})
		p.states[id] = next
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
	}
	return out
}

// check tells what is wrong with the rules, without the places.
func (p *play) check() (out []string) {
	if mistakes, ok := errors.AsType[Errors](p.wrong); ok {
		for _, m := range mistakes {
			out = append(out, m.Message)
		}
		return out
	}
	for _, w := range p.set.Warnings {
		out = append(out, "warning: "+w.Message)
	}
	return out
}

func (p *play) command(verb string, r *repeated) (out []string) {
	kinds := map[string]CommandKind{
		"block": CommandBlock, "unblock": CommandUnblock, "reset": CommandReset, "exempt": CommandExempt, "forget": CommandForget,
	}
	for _, shape := range p.set.Shapes {
		key := p.key(shape, &r.event)
		id := stateOf{shape.Index, key}
		next, res := p.stepper.Command(nil, p.states[id], []byte(key), Command{
			Kind: kinds[verb], Rule: r.rule, At: r.event.Time, Until: r.event.Time + r.span,
		})
		p.states[id] = next
		for _, v := range res.Changes {
			out = append(out, p.tell(&v))
		}
	}
	return out
}

// tell writes a verdict as a sentence.
func (p *play) tell(v *verdict.Verdict) string {
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
		return fmt.Sprintf("%s %s %s: %v of %v, at %s", v.Rule, what, event.FormatKey(v.Key), v.Count, v.Limit, p.clock(v.Since, v.Since))
	}
	return fmt.Sprintf("%s %s %s: %v of %v, since %s, until %s",
		v.Rule, what, event.FormatKey(v.Key), v.Count, v.Limit, p.clock(v.Since, v.Since), p.clock(v.Until, v.Since))
}

// key is the event's key of a shape.
func (p *play) key(shape *KeyShape, e *event.Event) string {
	var dims []event.Dim
	for _, name := range shape.Dims {
		switch name {
		case "uid":
			dims = append(dims, event.Dim{Name: name, Value: e.UID})
		case "ip":
			dims = append(dims, event.Dim{Name: name, Value: e.IP.String()})
		default:
			v, _ := e.Attr(strings.TrimPrefix(name, "attrs."))
			dims = append(dims, event.Dim{Name: name, Value: v.Text})
		}
	}
	return event.FormatKey(dims)
}

func (p *play) explain(e *event.Event) []string {
	var out []string
	for _, shape := range p.set.Shapes {
		key := p.key(shape, e)
		for _, x := range p.set.Explain(p.states[stateOf{shape.Index, key}], []byte(key), e.Time, e.API) {
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
