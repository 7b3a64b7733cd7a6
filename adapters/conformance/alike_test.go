package conformance

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// outcome holds a question's reply, and what the clerk has heard.
type outcome struct {
	About string
	reply
	Asked   []string // for permits, of whom and for what
	Emitted []string // events
	Ended   []string // permits, by what outcome
}

func (q *question) at(t *testing.T, ask door) outcome {
	c := &clerk{idle: q.idle}
	r := ask(t, q, q.table(t), c)
	return outcome{q.about, r, c.asked, c.emitted, c.ended}
}

// expectation turns the outcome of net/http's middleware into a door's; false: the door cannot be asked that. These
// are all differences that there are between doors: each is the protocol's, and documented.
type expectation func(q *question, o *outcome) bool

// byCode is gRPC's: codes for statuses, and details in place of fields and body.
func byCode(_ *question, o *outcome) bool {
	told := o.Fields
	o.Fields = map[string]string{}
	for _, name := range []string{"Retry-After", "Content-Language"} {
		if told[name] != "" && o.Status >= 400 {
			o.Fields[name] = told[name]
		}
	}
	after, _ := strconv.ParseInt(told["Retry-After"], 10, 64)
	o.Body = enforce.Problem{Detail: o.Body.Detail, Rule: o.Body.Rule, Action: o.Body.Action, Until: o.Body.Until, RetryAfter: after}
	switch {
	case o.Status == http.StatusBadRequest || o.Status < 300:
	case after > 1 || o.Body.Action != "":
		o.Status = http.StatusTooManyRequests
	default:
		o.Status = http.StatusServiceUnavailable
	}
	return true
}

// byProxy is of doors behind which a service emits, and settles the permit by that.
func byProxy(q *question, o *outcome) bool {
	o.Emitted = nil
	if o.Ended != nil {
		o.Ended = []string{"left"}
	}
	return q.permit == "" // it asks itself
}

// never5xx is of those who take a 5xx for a failure, which they may allow.
func never5xx(q *question, o *outcome) bool {
	if o.Status >= 500 {
		o.Status, o.Body.Status, o.Body.Title = 429, 429, http.StatusText(429)
	}
	return byProxy(q, o)
}

// byDescriptor is of RateLimitService: whoever is over a limit gets Envoy's own status, in its language, and a
// permit's numbers stand alone.
func byDescriptor(q *question, o *outcome) bool {
	if o.Status == http.StatusForbidden {
		o.Status, o.Body.Status = 429, 429
	}
	if o.Fields = maps.Clone(o.Fields); q.asks {
		for name, told := range o.Fields {
			o.Fields[name], _, _ = strings.Cut(told, ", ")
		}
	}
	return never5xx(q, o) && q.languages == "" && len(q.users) < 2 && q.method != http.MethodHead
}

// byServer is of the decision server, which emits what it denies.
func byServer(q *question, o *outcome) bool {
	emitted := slices.DeleteFunc(slices.Clone(o.Emitted), func(e string) bool { return e[:len(event.OutcomeLimited)] != event.OutcomeLimited })
	asked := byProxy(q, o)
	o.Emitted = slices.Clip(emitted)
	return asked && !q.asks
}

var expectations = map[string]expectation{
	"gRPC": byCode, "forward-auth": byProxy, "ext_authz": byProxy,
	"ext_authz over HTTP": never5xx, "rate limit": byDescriptor, "decision server": byServer,
}

// alike leaves out what may differ: who says that a request is unclear, and bodies where one protocol has none.
func (o outcome) alike(q *question) outcome {
	if o.Status == http.StatusBadRequest || q.method == http.MethodHead {
		o.Body = enforce.Problem{}
	}
	for _, list := range []*[]string{&o.Asked, &o.Emitted, &o.Ended} {
		if len(*list) == 0 {
			*list = nil
		}
	}
	if len(o.Fields) == 0 {
		o.Fields = nil
	}
	return o
}

// Every door answers alike: status, fields, body, event, and what becomes of a permit. testdata/answers.ndjson has
// what the middleware of net/http does; `go test . -run Alike -rewrite` writes it.
func TestDoorsAnswerAlike(t *testing.T) {
	var first []outcome
	for i := range questions {
		q := &questions[i]
		if q.method = cmp.Or(q.method, http.MethodPost); q.users == nil {
			q.users = []string{"7"}
		}
		first = append(first, q.at(t, services["net/http"]))
	}
	var text bytes.Buffer
	for i := range first {
		if err := json.NewEncoder(&text).Encode(first[i]); err != nil {
			t.Fatal(err)
		}
	}
	testrun.Golden(t, "testdata/answers.ndjson", text.String())
	for _, doors := range []map[string]door{services, proxies} {
		for _, name := range slices.Sorted(maps.Keys(doors)) {
			asked := 0
			for i := range questions {
				q, want := &questions[i], first[i]
				if expect := expectations[name]; expect != nil && !expect(q, &want) {
					continue
				}
				if asked++; !gocmp.Equal(want.alike(q), q.at(t, doors[name]).alike(q), gocmp.AllowUnexported(outcome{})) {
					t.Errorf("%s, %s: (- want)\n%s", name, q.about, gocmp.Diff(want.alike(q), q.at(t, doors[name]).alike(q), gocmp.AllowUnexported(outcome{})))
				}
			}
			if asked < 50 {
				t.Errorf("%s was asked %d questions", name, asked)
			}
		}
	}
}
