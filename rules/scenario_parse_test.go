package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // the zones that timelines are written in

	"github.com/tallygate/tallygate/event"
)

// A scenario file is a story: prose behind '#', then
//
//	start 2026-11-21T10:00:00+08:00      when 0s is
//	zone Asia/Shanghai                   in which times are shown (default UTC)
//	rules:                               and what follows up to '---', as in a rule file's spec
//	---
//	at 1m uid=u1 api=search.query        an event, and what comes of it, indented
//	    search block uid=u1: 100 of 100, since 10:01:00 CST, until 10:06:00 CST
//	explain 2m uid=u1 api=search.query   where the key stands
//	    search: 100 of 100, …
//	unblock 3m uid=u1                    a command: block, unblock, reset, exempt or forget, with rule and for
//	grant 3m uid=u1 rule=a gives=5      a limit or a grant by command: with for, id, ends
//	check                                what is wrong with the rules, or suspicious
//	record 4m {"api":"x","uid":42}       an event as it comes out of Kafka at that time
//	change limit: 5 => limit: 7          the rules are loaded again, with other words
//	judge 5m uid=u1                      what the pass in the background then does for that key
//	covers 6m uid=u1 api=search.query    which verdicts are in force for such an event, by record key
//
// A moment is a span since the start, or an RFC 3339 time. An event takes uid, api, outcome,
// id, ip, cost, broker (the span by which the broker saw it later), times and every (that many, so
// far apart); all else is an attribute. A '#' in uid, id, refunds and attributes is that one's number.
type scenario struct {
	start  event.Micros
	zone   *time.Location
	rules  string // YAML
	header []string
	steps  []scenarioStep
}

// scenarioStep is one line that does something, and what is expected of it.
type scenarioStep struct {
	before  []string // prose and empty lines ahead of it
	line    string
	verb    string // at or explain
	moment  event.Micros
	fields  []stepField
	rest    string // of a record or a change
	want    []string
	lineNum int
}

type stepField struct{ name, value string }

func parseScenario(text string) (*scenario, error) {
	sc := &scenario{zone: time.UTC, start: event.NoTime}
	header, body, ok := strings.Cut(text, "\n---\n")
	if !ok {
		return nil, fmt.Errorf("no line --- behind the rules")
	}
	sc.header = strings.Split(header, "\n")
	if err := sc.parseHeader(); err != nil {
		return nil, err
	}
	var before []string
	for i, line := range strings.Split(strings.TrimRight(body, "\n"), "\n") {
		number := len(sc.header) + 2 + i
		switch {
		case line == "" || line[0] == '#':
			before = append(before, line)
		case line[0] == ' ' && len(sc.steps) > 0:
			last := &sc.steps[len(sc.steps)-1]
			last.want = append(last.want, strings.TrimSpace(line))
		default:
			step, err := sc.parseStep(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
			step.before, step.lineNum, before = before, number, nil
			sc.steps = append(sc.steps, step)
		}
	}
	return sc, nil
}

func (sc *scenario) parseHeader() error {
	for i, line := range sc.header {
		verb, arg, _ := strings.Cut(line, " ")
		var err error
		switch {
		case line == "" || line[0] == '#':
		case verb == "start":
			sc.start, err = event.ParseMicros(arg)
		case verb == "zone":
			sc.zone, err = time.LoadLocation(arg)
		default:
			sc.rules = strings.Join(sc.header[i:], "\n") + "\n"
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return fmt.Errorf("no rules")
}

func (sc *scenario) parseStep(line string) (scenarioStep, error) {
	words := strings.Fields(line)
	step := scenarioStep{line: line, verb: words[0]}
	_, step.rest, _ = strings.Cut(line, " ")
	if step.verb == "check" || step.verb == "change" {
		return step, nil
	}
	if !slices.Contains([]string{"at", "explain", "block", "unblock", "reset", "exempt", "forget", "limit", "grant", "judge", "record", "covers"}, step.verb) || len(words) < 2 {
		return step, fmt.Errorf("%q is neither 'at MOMENT …' nor 'explain MOMENT …' nor a command", line)
	}
	var err error
	if step.moment, err = sc.parseMoment(words[1]); err != nil {
		return step, err
	}
	if step.verb == "record" {
		_, step.rest, _ = strings.Cut(step.rest, " ")
		return step, nil
	}
	for _, word := range words[2:] {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			return step, fmt.Errorf("%q is not name=value", word)
		}
		step.fields = append(step.fields, stepField{name, value})
	}
	return step, nil
}

func (sc *scenario) parseMoment(s string) (event.Micros, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return sc.start + event.FromDuration(d), nil
	}
	at, err := event.ParseMicros(s)
	if err != nil {
		return 0, fmt.Errorf("%q is neither a span since the start, such as 90s or 720h, nor a time such as 2026-11-21T10:00:00Z", s)
	}
	return at, nil
}

// repeated is an event line taken apart: the event, and how often it comes.
type repeated struct {
	event  event.Event
	broker event.Micros // how much later the broker saw it; NoTime: that isn't known
	times  int
	every  event.Micros

	rule   string // of a command
	span   event.Micros
	amount event.Decimal // of a limit or a grant
	period bool          // until the period's end
	ends   bool
}

func (step *scenarioStep) parseEvent() (repeated, error) {
	r := repeated{broker: event.NoTime, times: 1}
	r.event = event.Event{Time: step.moment, Cost: event.One}
	for _, f := range step.fields {
		if err := r.set(f); err != nil {
			return r, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return r, nil
}

func (r *repeated) set(f stepField) (err error) {
	e := &r.event
	switch f.name {
	case "uid":
		e.UID = f.value
	case "api":
		e.API = f.value
	case "outcome":
		e.Outcome = f.value
	case "id":
		e.ID = f.value
	case "ip":
		return e.IP.UnmarshalText([]byte(f.value))
	case "refunds":
		e.Refunds = f.value
	case "rule":
		r.rule = f.value
	case "for":
		if r.period = f.value == "period-end"; !r.period {
			r.span, err = span(f.value)
		}
	case "ends":
		r.ends = true
	case "gives":
		if f.value != "unlimited" {
			r.amount, err = event.ParseDecimal(f.value)
		}
	case "cost":
		e.Cost, err = event.ParseDecimal(f.value)
	case "times":
		r.times, err = strconv.Atoi(f.value)
	case "every":
		r.every, err = span(f.value)
	case "broker":
		r.broker, err = span(f.value)
	default:
		kind := event.String
		if _, err := event.ParseDecimal(f.value); err == nil {
			kind = event.Number
		} else if f.value == "true" || f.value == "false" {
			kind = event.Bool
		}
		e.Attrs = append(e.Attrs, event.Attr{Name: f.name, Value: event.Value{Kind: kind, Text: f.value}})
	}
	return err
}

func span(s string) (event.Micros, error) {
	d, err := time.ParseDuration(s)
	return event.FromDuration(d), err
}
