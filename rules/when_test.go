package rules

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

const fails = "fails"

// whenCases are predicates, and what they say of an event that has everything and of one that has
// next to nothing.
var whenCases = []struct{ when, full, bare string }{
	{`true`, "true", "true"},
	{`attrs.ok`, "true", "false"},
	{`attrs.ok == true`, "true", "false"},
	{`attrs.plan == "pro"`, "true", "false"},
	{`attrs.plan in ["pro", "internal"]`, "true", "false"},
	{`attrs.plan not in ["basic"]`, "true", "true"},
	{`attrs.n in [41, 42]`, "true", "false"},
	{`attrs.n in ["42"]`, "false", "false"},
	{`attrs.n == 42 && attrs.f == -0.5`, "true", "false"},
	{`attrs.n % 2 == 0`, "true", fails},
	{`attrs.n > 41`, "true", fails},
	{`attrs.n != nil && attrs.n > 41`, "true", "false"},
	{`(attrs.n ?? 0) > 41`, "true", "false"},
	{`attrs["pl" + "an"] == "pro"`, "true", "false"},
	{`attrs.empty == nil && attrs.none == nil`, "true", "true"},
	{`len(attrs) == 5`, "true", "false"},
	{`len(attrs) == 5 && "plan" in attrs && attrs.plan == "pro"`, "true", "false"},
	{`attrs?.plan == "pro"`, "true", "false"},
	{`let limit = 40; attrs.n != nil && attrs.n > limit`, "true", "false"},
	{`attrs.plan > 3`, fails, fails},
	{`attrs.plan`, fails, "false"},
	{`uid == nil`, "false", "true"},
	{`uid == "u1" && id == "e1"`, "true", "false"},
	{`ip == "2001:db8::1"`, "true", "false"},
	{`ip startsWith "2001:"`, "true", "false"},
	{`inNetwork(ip, "2001:db8::/32")`, "true", "false"},
	{`inNetwork(ip, "10.0.0.0/8", "2001:db8::1")`, "true", "false"},
	{`not inNetwork(ip, "::/0")`, "false", "true"},
	{`inNetwork(attrs.plan, "::/0")`, "false", "false"},
	{`inNetwork(attrs.n, "::/0")`, "false", "false"},
	{`api matches "^order[.]"`, "true", "true"},
	{`outcome == ""`, "false", "true"},
	{`cost < 1`, "true", "false"},
	{`time.Hour() == 18 && time.Weekday().String() == "Saturday"`, "true", "true"},
	{`time.In(timezone("Asia/Shanghai")).Day() == 22`, "true", "true"},
	{`time < date("2026-11-21T18:00:01Z")`, "true", "true"},
	{`any(["a", "b"], # == "b")`, "true", "true"},
	{`repeat(api, 100000) != ""`, fails, fails},
}

func TestWhen(t *testing.T) {
	full := &event.Event{
		ID: "e1", UID: "u1", API: "order.create", Outcome: "success", Cost: event.One / 2,
		IP: netip.MustParseAddr("2001:db8::1"),
		Attrs: []event.Attr{
			{Name: "plan", Value: event.Value{Text: "pro"}},
			{Name: "n", Value: event.Value{Kind: event.Number, Text: "42"}},
			{Name: "f", Value: event.Value{Kind: event.Number, Text: "-0.5"}},
			{Name: "ok", Value: event.Value{Kind: event.Bool, Text: "true"}},
			{Name: "empty", Value: event.Value{Text: ""}},
		},
	}
	bare := &event.Event{API: "order.create", Cost: event.One}
	at := event.FromTime(time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC))
	for _, test := range whenCases {
		set := compileRules(t, "    - name: r\n      key: attrs.key\n      match: {api: \"*\"}\n      count: {sum: cost}\n"+
			"      when: |\n        "+test.when+"\n      limit: 1\n      per: 1s\n      then: {block: 1s}\n")
		m := set.NewMatcher()
		for _, c := range []struct {
			of   string
			e    *event.Event
			want string
		}{{"full", full, test.full}, {"bare", bare, test.bare}} {
			e := *c.e
			e.Attrs = append(slices.Clone(e.Attrs), event.Attr{Name: "key", Value: event.Value{Text: "k"}})
			got := "false"
			if len(m.Match(&e, at)) > 0 {
				got = "true"
			}
			for _, s := range m.Skipped {
				if s.Reason == SkipWhen {
					got = fails
				}
			}
			if got != c.want {
				t.Errorf("%s: on the %s event: %s, want %s", test.when, c.of, got, c.want)
			}
		}
	}
}

func TestWhenRefuses(t *testing.T) {
	for when, want := range map[string]string{
		`now() > time`:                           "now() is not supported",
		`time.Local().Hour() > 3`:                "time.Local() is not supported",
		`date("x", "y", "Asia/Tokyo") > time`:    "third argument",
		`timezone(api) == nil`:                   "takes a name in quotes",
		`timezone("Mars/Base") == nil`:           `no timezone "Mars/Base"`,
		`all([1], {all([2], {# > 1})})`:          "loop inside another",
		`5 in 1..10`:                             "ranges are not supported",
		`$env["uid"] == "x"`:                     "$env is not supported",
		`cost > "3"`:                             "mismatched types",
		`"text"`:                                 "expected bool",
		strings.Repeat("(", 5000):                "bytes, and may have 4096",
		strings.Repeat("cost>1&&", 500) + "true": "exceeds",
	} {
		_, err := Compile("x.yaml", []byte(header+"  rules:\n    - name: r\n      match: {api: x}\n      when: |\n        "+
			when+"\n      limit: 1\n      per: 1s\n      then: {block: 1s}\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v", when, err)
		}
	}
}

// A predicate that costs nothing to run costs nothing to call.
func TestWhenAllocatesOnlyForWhatItReads(t *testing.T) {
	set := compileRules(t, ruleYAML("r", "match: {api: x}, when: attrs.discounted == true and attrs.n < 100"))
	m := set.NewMatcher()
	e := &event.Event{API: "x", UID: "u", Cost: event.One, Attrs: []event.Attr{
		{Name: "discounted", Value: event.Value{Kind: event.Bool, Text: "true"}},
		{Name: "n", Value: event.Value{Kind: event.Number, Text: "42"}},
		{Name: "unread", Value: event.Value{Text: "a text that would have to be boxed"}},
	}}
	if len(m.Match(e, 0)) != 1 {
		t.Fatal("no match")
	}
	if n := testrun.Allocs(1000, func() { m.Match(e, 0) }); n > 0 {
		t.Errorf("%v allocations an event", n)
	}
}

// FuzzWhen: a predicate is compiled or refused, and then holds, doesn't or fails; where it holds, it may hold
// before all is known that it asks for.
func FuzzWhen(f *testing.F) {
	for _, seed := range []string{
		`attrs.discounted == true`, `attrs[api] in ["a", 1, nil] or uid matches "^u"`, `time.In(timezone("Asia/Tokyo")).Hour() > 8`,
		`all(split(api, "."), len(#) > 2) ? attrs?.x : cost > 1`, `let x = attrs.n ?? 3; x % 2 == 0`, `date("2026-01-02") < time`,
		`reduce([1, 2], #acc + #, 0) > cost`, `toJSON(attrs) contains "x"`, `api[1:3] == "rd"`, `$env.uid == nil`,
		`inNetwork(ip, "10.0.0.0/8", "office")`, `any(split(attrs.s, ","), inNetwork(#, "::/0", "::ffff:10.0.0.0/104"))`, `not (attrs.s | inNetwork("192.0.2.1"))`,
	} {
		f.Add(seed)
	}
	e := &event.Event{API: "order.create", UID: "u", Cost: event.One, Attrs: []event.Attr{
		{Name: "n", Value: event.Value{Kind: event.Number, Text: "42"}}, {Name: "s", Value: event.Value{Text: "a,b"}},
	}}
	f.Fuzz(func(t *testing.T, when string) {
		text, err := json.Marshal(when) // a YAML text too
		if err != nil {
			t.Skip()
		}
		set, err := Compile("fuzz.yaml", []byte(header+"  rules: [{name: r, match: {api: \"*\"}, limit: 1, per: 1s, then: {block: 1s}, when: "+string(text)+"}]"))
		if err != nil {
			return
		}
		counts := len(set.NewMatcher().Match(e, 0)) > 0
		set, err = Compile("fuzz.yaml", []byte(header+"  rules: [{name: r, match: {api: \"*\"}, limit: 1, per: 1s, strict: true, when: "+string(text)+"}]"))
		if err != nil {
			t.Fatalf("%s: a strict rule can't have it: %v", when, err)
		}
		q := NewRequests(set.Strict())
		for _, known := range []*event.Event{{API: e.API, UID: e.UID, Cost: e.Cost}, {API: e.API, UID: e.UID, Cost: e.Cost, Attrs: e.Attrs[:1]}, e} {
			for _, at := range []event.Micros{0, event.NoTime} {
				if asks := len(q.Wants(known, at)) > 0; counts && !asks {
					t.Fatalf("%s: it counts %+v, and a request that is known as %+v asks for nothing", when, e, known)
				}
			}
		}
	})
}
