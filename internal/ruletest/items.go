package ruletest

import (
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// maxTimes bounds how many events one line may stand for.
const maxTimes = 1_000_000

// events reads one item of events: times events, every so far apart.
func (r *reader) events(n *yaml.Node) []Event {
	r.item = formOf(n)
	r.known("at", "uid", "ip", "api", "outcome", "id", "cost", "refunds", "attrs", "times", "every", "arrives")
	e := Event{Event: r.who(), Line: n.Line}
	e.Outcome, e.ID, e.Refunds = r.text("outcome"), r.text("id"), r.text("refunds")
	if cost := r.text("cost"); cost != "" {
		var err error
		if e.Cost, err = event.ParseDecimal(cost); err != nil {
			r.errorf(r.item.fields["cost"], "cost %q: want a number", cost)
		}
	}
	if e.Cost < 0 && e.Refunds == "" {
		r.errorf(n, "a negative cost needs refunds: the id of the event that it takes back")
	}
	e.Time = r.moment("at", r.start)
	e.Broker = r.moment("arrives", e.Time)
	if e.Broker < e.Time {
		r.errorf(n, "the event arrives before it happens")
	}
	times, every := r.times()
	out := make([]Event, 0, times)
	for range times {
		out = append(out, e)
		e.Time += every
		e.Broker += every
	}
	return out
}

func (r *reader) times() (n int, every event.Micros) {
	n = 1
	if s := r.text("times"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 1 || n > maxTimes {
			r.errorf(r.item.fields["times"], "times %q: want a whole number from 1 to %d", s, maxTimes)
			n = 1
		}
	}
	if s := r.text("every"); s != "" {
		var err error
		if every, err = rules.ParseDuration(s); err != nil {
			r.errorf(r.item.fields["every"], "every %q: want a span such as 1s or 1m", s)
		}
	}
	return n, every
}

var wants = []string{"none", "block", "challenge", "throttle", "log", "warn"}

// expect reads one item of expect.
func (r *reader) expect(n *yaml.Node) Expect {
	r.item = formOf(n)
	r.known("at", "uid", "ip", "api", "attrs", "verdict", "rule", "mode", "until", "since", "count", "limit")
	x := Expect{
		Line: n.Line, At: r.moment("at", r.start), Who: r.who(),
		Want: r.text("verdict"), Rule: r.text("rule"),
		Until: r.moment("until", event.NoTime), Since: r.moment("since", event.NoTime),
		Count: r.decimal("count"), Limit: r.decimal("limit"),
	}
	if !slices.Contains(wants, x.Want) {
		r.errorf(n, "verdict %q: want none, block, challenge, throttle, log or warn", x.Want)
	}
	switch mode := r.text("mode"); mode {
	case "", "enforce":
	case "shadow":
		x.Shadow = true
	default:
		r.errorf(r.item.fields["mode"], "mode %q: want enforce or shadow", mode)
	}
	if x.Want == "none" && (x.Until != event.NoTime || x.Since != event.NoTime) {
		r.errorf(n, "where no verdict is expected there is no since and no until")
	}
	return x
}

// decimal reads a number as events write it.
func (r *reader) decimal(name string) string {
	s := r.text(name)
	if s == "" {
		return ""
	}
	d, err := event.ParseDecimal(s)
	if err != nil {
		r.errorf(r.item.fields[name], "%s %q: want a number", name, s)
	}
	return d.String()
}
