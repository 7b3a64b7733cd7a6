package ruletest

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/verdict"
)

// maxTimes bounds how many events one line may stand for.
const maxTimes = 1_000_000

// reader reads the items of a test.
type reader struct {
	doc   *document.File
	file  *File
	start event.Micros     // of the test
	item  *document.Object // the one being read
}

func (r *reader) text(name string) string {
	n := r.item.Get(name)
	if n == nil {
		return ""
	}
	s, _ := r.doc.Text(n, name)
	return s
}

// fail reports a mistake in a field, or in the item when the field is absent.
func (r *reader) fail(name, hint, format string, args ...any) {
	r.doc.Fail(r.item.At(name), hint, format, args...)
}

// moment reads a span since the start, or a time.
func (r *reader) moment(name string, absent event.Micros) event.Micros {
	s := r.text(name)
	if s == "" {
		return absent
	}
	if s == "forever" {
		return event.Forever
	}
	if d, ok := span(s); ok {
		return r.start + d
	}
	t, err := event.ParseMicros(s)
	if err != nil {
		r.fail(name, "a span is for example 90s, 2m or 1d, a time 2026-11-22T00:00:00+08:00", "%s: %q is neither a span since the start nor a time", name, s)
		return absent
	}
	return t
}

// span reads a duration as rules have it, of which the seconds may have a fraction: 59.999s, 1m0.5s.
func span(s string) (event.Micros, bool) {
	whole, fraction, ok := strings.Cut(s, ".")
	if !ok {
		d, err := rules.ParseDuration(s)
		return d, err == nil
	}
	digits, ok := strings.CutSuffix(fraction, "s")
	if !ok || digits == "" || len(digits) > 6 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	d, err := rules.ParseDuration(whole + "s")
	part, _ := strconv.Atoi((digits + "00000")[:6])
	return d + event.Micros(part), err == nil
}

// who reads the fields that events and expectations share.
func (r *reader) who() event.Event {
	e := event.Event{UID: r.text("uid"), API: r.text("api"), Cost: event.One, Time: event.NoTime, BrokerTime: event.NoTime}
	switch {
	case !r.item.Has("api"):
		r.fail("api", "for example api: order.create", "api is missing")
	case strings.Contains(e.API, "*"):
		r.fail("api", "use a name that the pattern matches", "api: %q is a pattern; an event needs a name", e.API)
	}
	if len(e.UID) > event.MaxUID {
		r.fail("uid", "use a shorter one: a longer one is counted under its hash", "uid has %d bytes; at most %d are allowed", len(e.UID), event.MaxUID)
		e.UID = ""
	}
	if ip := r.text("ip"); ip != "" {
		addr, ok := event.ParseAddress(ip)
		if !ok {
			r.fail("ip", "for example 192.0.2.1 or 2001:db8::1", "ip: %q is not an IPv4 or IPv6 address", ip)
		}
		e.IP = addr
	}
	if n := r.item.Get("attrs"); n != nil {
		e.Attrs = r.doc.Attrs(n)
	}
	return e
}

// events reads one item of events: it stands for `times` events, `every` apart.
func (r *reader) events(n *yaml.Node) []Event {
	before := r.doc.Mistakes()
	var ok bool
	if r.item, ok = r.doc.Object(n, "an event", "at", "uid", "ip", "api", "outcome", "id", "cost", "refunds", "attrs", "times", "every", "arrives"); !ok {
		return nil
	}
	e := Event{Event: r.who(), Line: n.Line, item: r.item}
	e.Outcome, e.ID, e.Refunds = r.text("outcome"), r.text("id"), r.text("refunds")
	if cost := r.text("cost"); cost != "" {
		var err error
		if e.Cost, err = event.ParseDecimal(cost); err != nil {
			r.fail("cost", "for example cost: 2.5", "cost: %q is not a number", cost)
		}
	}
	if e.Cost < 0 && !r.item.Has("refunds") {
		r.fail("cost", "for example refunds: o1, the id of the event that it takes back", "a negative cost needs refunds")
	}
	e.Time = r.moment("at", r.start)
	e.Broker = r.moment("arrives", e.Time)
	if e.Broker < e.Time {
		r.fail("arrives", "", "the event arrives before it happens")
	}
	times, every := r.times()
	if r.doc.Mistakes() == before {
		r.valid(&e.Event)
	}
	if r.file.events += times; r.file.events > r.file.maxEvents {
		if r.file.events-times <= r.file.maxEvents {
			r.fail("times", "", "the tests have more than %d events together, which is too many here", r.file.maxEvents)
		}
		return nil
	}
	out := make([]Event, 0, times)
	for range times {
		out = append(out, e)
		e.Time += every
		e.Broker += every
	}
	return out
}

// valid reports values that an event cannot have: it would not be counted, or under another value.
func (r *reader) valid(e *event.Event) {
	err := e.Validate()
	if err == nil {
		return
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		message := strings.TrimPrefix(line, "event: ")
		field, _, _ := strings.Cut(message, " ")
		r.fail(field, "", "%s", message)
	}
}

func (r *reader) times() (n int, every event.Micros) {
	n = 1
	if s := r.text("times"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 1 || n > maxTimes {
			r.fail("times", "", "times: %[2]q is not a whole number from 1 to %[1]d", maxTimes, s)
			n = 1
		}
	}
	if at := r.item.Get("every"); at != nil {
		var ok bool
		if every, ok = span(r.text("every")); !ok {
			every, _ = r.doc.Span(at, "every")
		}
	}
	return n, every
}

// wants are the verdicts of an expectation: the actions, a notice, or none of them.
var wants = slices.Concat([]string{"none"}, verdict.ActionNames(), []string{"warn"})

// expect reads one item of expect.
func (r *reader) expect(n *yaml.Node) Expect {
	var ok bool
	r.item, ok = r.doc.Object(n, "an expectation", "at", "uid", "ip", "api", "attrs", "verdict", "rule", "mode", "until", "since", "count", "limit", "left")
	if !ok {
		return Expect{Line: n.Line}
	}
	x := Expect{
		Line: n.Line, At: r.moment("at", r.start), Who: r.who(),
		Rule: r.text("rule"), rule: r.item.Get("rule"),
		Until: r.moment("until", event.NoTime), Since: r.moment("since", event.NoTime),
		Count: r.decimal("count"), Limit: r.decimal("limit"), Left: r.decimal("left"),
	}
	if at := r.item.Get("verdict"); at != nil {
		x.Want, _ = r.doc.Word(at, "verdict", wants...)
	} else if !r.item.Has("verdict") && !r.item.Has("left") {
		r.fail("verdict", "verdict is one of "+strings.Join(wants, ", "), "an expectation needs `verdict`")
	}
	if at := r.item.Get("mode"); at != nil {
		mode, _ := r.doc.Word(at, "mode", "enforce", "shadow")
		x.Shadow = mode == "shadow"
	}
	if len(dims(&x.Who)) == 0 && !r.item.Has("uid") && !r.item.Has("ip") && !r.item.Has("attrs") {
		x.nobody = n
	}
	if r.item.Get("left") != nil && !r.item.Has("rule") {
		r.fail("left", "for example rule: searches", "`left` needs `rule`: under which limit")
	}
	if x.Want == "none" || x.Want == "" && r.item.Has("left") && !r.item.Has("verdict") {
		for _, name := range []string{"until", "since", "count", "limit"} {
			if r.item.Get(name) != nil {
				r.fail(name, "leave it out, or name the verdict that is expected", "`%s` needs an expected verdict", name)
			}
		}
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
		r.fail(name, "", "%s: %q is not a number", name, s)
	}
	return d.String()
}
