package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// What scenarios do besides events: see scenario.

// change puts other words into the rules. Rules that don't compile change nothing.
func (p *play) change(words string) ([]string, error) {
	old, new, ok := strings.Cut(words, " => ")
	if !ok || strings.Count(p.rules, old) == 0 {
		return nil, fmt.Errorf("%q is not `change WHAT => INTO`, or that is not in the rules", words)
	}
	text := strings.ReplaceAll(p.rules, old, new)
	if err := p.load(text); err != nil {
		return p.check(), nil
	}
	p.rules = text
	return nil, nil
}

// judge does what the pass in the background does for one user.
func (p *play) judge(e *event.Event) (out []string) {
	for _, shape := range p.set.Shapes {
		key := p.key(shape, e)
		next, res := p.stepper.Rejudge(nil, p.states[key], []byte(key), e.Time)
		p.states[key] = next
		for _, v := range res.Changes {
			out = append(out, p.tell(&v))
		}
		out = append(out, p.left(key)...)
	}
	return out
}

// record decodes an event as it comes out of Kafka.
func (p *play) record(step *scenarioStep) ([]string, error) {
	d := event.NewDecoder()
	events, _ := d.Decode([]byte(step.rest), nil, nil, nil)
	var out []string
	for _, bad := range d.Bad {
		out = append(out, "no event: "+bad.Err.Error())
	}
	for i := range events {
		out = append(out, p.event(events[i], step.moment)...)
	}
	return out, nil
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

// allow gives a limit or a grant to the key of the rule's dimensions.
func (p *play) allow(verb string, r *repeated) (out []string) {
	cmd := Command{
		Kind: CommandGrant, Rule: r.rule, At: r.event.Time, Until: event.NoTime, Amount: r.amount, ID: r.event.ID,
		Ends: r.ends, PeriodEnd: r.period, Asked: fmt.Sprint(r.span, r.period),
	}
	if verb == "limit" {
		cmd.Kind = CommandLimit
	}
	if r.span > 0 {
		cmd.Until = r.event.Time + r.span
	}
	l, err := limitNamed(p.set, r.rule)
	if err != nil {
		return []string{err.Error()}
	}
	key := p.key(l.Rule.Shape, &r.event)
	plan, repeated, err := cmd.Plan(p.stepper, p.states[key], []byte(key))
	switch {
	case err != nil:
		return []string{strings.TrimPrefix(err.Error(), "rules: ")}
	case repeated:
		return []string{"as before"}
	}
	next, res := p.stepper.Command(nil, p.states[key], []byte(key), plan)
	if err := p.stepper.Gave.Err; err != nil {
		return []string{"not carried out: " + err.Error()}
	}
	p.states[key] = next
	for i := range res.Changes {
		out = append(out, p.tell(&res.Changes[i]))
	}
	return append(out, p.left(key)...)
}

func (p *play) command(verb string, r *repeated) (out []string) {
	kinds := map[string]CommandKind{
		"block": CommandBlock, "unblock": CommandUnblock, "reset": CommandReset, "exempt": CommandExempt, "forget": CommandForget,
	}
	for _, shape := range p.set.Shapes {
		key := p.key(shape, &r.event)
		next, res := p.stepper.Command(nil, p.states[key], []byte(key), Command{
			Kind: kinds[verb], Rule: r.rule, At: r.event.Time, Until: r.event.Time + r.span,
		})
		p.states[key] = next
		for _, v := range res.Changes {
			out = append(out, p.tell(&v))
		}
		out = append(out, p.left(key)...)
	}
	return out
}

// covers are the verdicts in force that are about an event, by their record keys.
func (p *play) covers(e *event.Event) (out []string) {
	for _, key := range slices.Sorted(maps.Keys(p.last)) {
		v := p.last[key]
		if v.State == verdict.Clear || e.Time < v.Since || e.Time >= v.Until || !v.Covers(e.API) {
			continue
		}
		if about := slices.IndexFunc(p.set.Shapes, func(s *KeyShape) bool { return p.key(s, e) == v.KeyText() }); about >= 0 {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s: %v %v", key, v.State, v.Mode)))
		}
	}
	return out
}
