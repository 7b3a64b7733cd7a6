package when

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/network"
)

type utc struct{}

func (utc) Load(name string) *time.Location {
	zone, _ := time.LoadLocation(name)
	return zone
}
func (utc) Meant(string) string         { return "" }
func (utc) MeantNetworks(string) string { return "" }

// Networks knows one list.
func (utc) Networks(name string) *network.Set {
	if name != "office" {
		return nil
	}
	return network.New([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")})
}

func mayEvaluator(t testing.TB, source string) (*Evaluator, *Predicate, *Parts) {
	t.Helper()
	p, mistakes := Compile(source, utc{})
	if p == nil {
		t.Fatalf("%s: %v", source, mistakes)
	}
	parts, ev := Split(source, utc{}), NewEvaluator()
	ev.Know(p)
	ev.KnowParts(parts)
	return ev, p, parts
}

func attr(name string, kind event.Kind, text string) event.Attr {
	return event.Attr{Name: name, Value: event.Value{Kind: kind, Text: text}}
}

func TestWhatIsNotKnownMayBeAnything(t *testing.T) {
	known := &event.Event{API: "sms.send", UID: "42", Cost: 2 * event.One, Attrs: []event.Attr{
		attr("plan", event.String, "pro"), attr("n", event.Number, "7"), attr("vip", event.Bool, "true"), attr("a b", event.String, "x\"y"),
	}}
	for source, want := range map[string]Answer{
		`attrs.plan == "pro"`:                                              Yes,
		`attrs.plan == "free"`:                                             No,
		`attrs["a b"] == "x\"y"`:                                           Yes,
		`outcome == "success"`:                                             Maybe,
		`attrs.plan == "pro" and outcome == "success"`:                     Maybe,
		`attrs.plan == "free" and outcome == "success"`:                    No,
		`outcome == "success" && attrs.plan == "free"`:                     No,
		`outcome == "success" or attrs.n > 5`:                              Maybe,
		`not (outcome == "success" or attrs.n > 5)`:                        No,
		`!(outcome == "success" || attrs.n > 9)`:                           Maybe,
		`attrs.vip and attrs.country in ["DE", "FR"]`:                      Maybe,
		`attrs.vip ? outcome == "x" : attrs.n == 7`:                        Maybe,
		`attrs.n > 9 ? outcome == "x" : attrs.n == 7`:                      Maybe,
		`outcome == "x" ? attrs.n > 9 : attrs.plan == "free"`:              No,
		`outcome == "x" ? attrs.n == 7 : attrs.plan == "pro"`:              Maybe,
		`len(attrs) > 10`:                                                  Maybe,
		`any(["a", "pro"], # == attrs.plan) and attrs.n % 2 == 0`:          No,
		`let n = attrs.n; n > 5 and n < 9`:                                 Yes,
		`let n = attrs.m; n > 5 and n < 9`:                                 Maybe,
		`time.Hour() < 6 and cost > 5`:                                     No,
		`time.Hour() < 6 and cost < 5`:                                     Maybe,
		`time.In(timezone("Asia/Shanghai")).Hour() < 6 or uid == "42"`:     Maybe,
		`ip startsWith "10."`:                                              Maybe,
		`id != "" and api matches "^sms"`:                                  Maybe,
		`(attrs.plan ?? "none") == "pro" and not ((attrs.x ?? 1) > 0)`:     Maybe,
		`attrs.n > 5 and attrs.plan > 5 and outcome == "x"`:                Maybe, // it fails, or is not reached
		`(attrs.plan > 5 or attrs.n == 7) or outcome == "x"`:               Maybe,
		`attrs.plan > 5`:                                                   No,
		`true or outcome == "x"`:                                           Yes,
		`attrs.plan in ["pro", "team"] and -attrs.n < 0 and outcome == ""`: Maybe,
	} {
		ev, _, parts := mayEvaluator(t, source)
		ev.Next()
		if got := ev.May(parts, known, event.NoTime); got != want {
			t.Errorf("%s: %d, want %d", source, got, want)
		}
	}
}

func TestUses(t *testing.T) {
	_, p, _ := mayEvaluator(t, `attrs.plan == "pro" and any([1, 2], # == cost)`)
	for name, want := range map[string]bool{"attrs.plan": true, "cost": true, "outcome": false, "attrs": false, "plan": false} {
		if p.Uses(name) != want {
			t.Errorf("uses %s: %t", name, !want)
		}
	}
}

// Whatever is not known, no answer is wrong of any event that it may become.
func TestAnswersHoldWhateverComes(t *testing.T) {
	seed := time.Now().UnixNano()
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	t.Logf("seed %d", seed)
	leaves := []string{
		`attrs.a == "x"`, `attrs.b > 3`, `attrs.c`, `outcome == "ok"`, `cost >= 2`, `uid == "1"`, `attrs.b in [1, 4]`, `attrs.a contains "x"`,
		`attrs.a startsWith "y"`, `true`, `(attrs.b ?? 0) < 3`, `attrs.a != nil`, `time.Hour() > 3`, `any(["x", "y"], # == attrs.a)`,
	}
	var draw func(depth int) string
	draw = func(depth int) string {
		if depth == 0 || r.IntN(5) == 0 {
			return leaves[r.IntN(len(leaves))]
		}
		switch r.IntN(5) {
		case 0:
			return "not (" + draw(depth-1) + ")"
		case 1:
			return "(" + draw(depth-1) + ") ? (" + draw(depth-1) + ") : (" + draw(depth-1) + ")"
		case 2:
			return draw(depth-1) + " and " + draw(depth-1)
		case 3:
			return draw(depth-1) + " or " + draw(depth-1)
		}
		return "(" + draw(depth-1) + " || " + draw(depth-1) + ")"
	}
	answers := [3]int{}
	for range 1500 {
		source := draw(3)
		if strings.Contains(source, " ? ") && strings.Contains(source, " or not") {
			continue
		}
		ev, p, parts := mayEvaluator(t, source)
		full := &event.Event{API: "x", UID: []string{"1", "2"}[r.IntN(2)], Outcome: []string{"ok", "bad"}[r.IntN(2)], Cost: event.One * event.Decimal(1+r.IntN(3))}
		for _, a := range []event.Attr{
			attr("a", event.String, []string{"x", "y", "yx"}[r.IntN(3)]), attr("b", event.Number, fmt.Sprint(r.IntN(6))),
			attr("c", event.Bool, fmt.Sprint(r.IntN(2) == 0)),
		} {
			switch r.IntN(4) {
			case 0:
			case 1:
				a.Value.Kind = event.String // predicates over it fail
				fallthrough
			default:
				full.Attrs = append(full.Attrs, a)
			}
		}
		at := event.Micros(r.Int64N(int64(event.Day)))
		ev.Next()
		holds, _ := ev.Holds(p, full, at)
		part := *full
		part.Attrs = nil
		for _, a := range full.Attrs {
			if r.IntN(2) == 0 {
				part.Attrs = append(part.Attrs, a)
			}
		}
		if r.IntN(2) == 0 {
			part.Outcome = ""
		}
		if r.IntN(2) == 0 {
			part.UID = ""
		}
		ev.Next()
		answer := ev.May(parts, &part, []event.Micros{at, event.NoTime}[r.IntN(2)])
		answers[answer]++
		if answer == Yes && !holds || answer == No && holds {
			t.Fatalf("%s: %+v may be %+v: answer %d, and it holds: %t", source, part, *full, answer, holds)
		}
	}
	for answer, n := range answers {
		if n < 50 {
			t.Errorf("answer %d was given %d times", answer, n)
		}
	}
}
