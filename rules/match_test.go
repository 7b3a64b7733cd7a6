package rules

import (
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

// compileRules compiles rules that are given as the items of spec.rules.
func compileRules(t testing.TB, rules string) *Set {
	t.Helper()
	set, err := Compile("test.yaml", []byte(header+"  rules:\n"+rules))
	if err != nil {
		t.Fatalf("compile:\n%v", err)
	}
	return set
}

const header = "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: test}\nspec:\n"

// rule is a rule's YAML with the given fields beside the usual ones.
func ruleYAML(name, fields string) string {
	return fmt.Sprintf("    - {name: %s, limit: 100, per: 1m, then: {block: 5m}, %s}\n", name, fields)
}

// showWorks renders what Match returns: key, hash and for each limit the amount.
func showWorks(works []Work) string {
	var out []string
	for _, w := range works {
		for _, h := range w.Hits {
			out = append(out, fmt.Sprintf("%s %s=%s", w.Key, h.Limit.Name, h.Amount))
		}
	}
	return strings.Join(out, "; ")
}

func decimal(t testing.TB, s string) event.Decimal {
	t.Helper()
	d, err := event.ParseDecimal(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestMatchAPI(t *testing.T) {
	for _, test := range []struct {
		pattern, api string
		want         bool
	}{
		{"order.create", "order.create", true},
		{"order.create", "order.created", false},
		{"*", "anything.at.all", true},
		{"*", "", true},
		{"up.*", "up", false},
		{"up.*", "up.a", true},
		{"up.*", "up.a.b", true},
		{"up.*", "upper.a", false},
		{"up*", "up", true},
		{"up*", "upper.a.b", true},
		{"ord*.create", "order.create", true},
		{"ord*.create", "ord.create", true},
		{"ord*.create", "order.x.create", false},
		{"*.create", "order.create", true},
		{"*.create", "a.order.create", false},
		{"a.*.c", "a.b.c", true},
		{"a.*.c", "a.b.b.c", false},
		{"a.*.c*", "a.b.c.d", true},
		{"*a*b.c", "xaxbxb.c", true},
		{"*a*b.c", "xaxbx.c", false},
		{"a.*b*", "a.xxbyy.z", true},
		{"a.*b*", "a.x.b", false},
	} {
		if got := verdict.MatchAPI(test.pattern, test.api); got != test.want {
			t.Errorf("MatchAPI(%q, %q) = %t", test.pattern, test.api, got)
		}
	}
}

// A pattern is a regular expression in other clothes.
func TestMatchAPIIsAsRegexp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab.*]{1,8}`).Draw(t, "pattern")
		api := rapid.StringMatching(`[ab.]{0,8}`).Draw(t, "api")
		expression := strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `[^.]*`)
		if strings.HasSuffix(pattern, "*") {
			expression = strings.TrimSuffix(expression, `[^.]*`) + ".*"
		}
		want := regexp.MustCompile("^" + expression + "$").MatchString(api)
		if got := verdict.MatchAPI(pattern, api); got != want {
			t.Fatalf("MatchAPI(%q, %q) = %t", pattern, api, got)
		}
	})
}

// linear finds what counts an API's events as one would by hand: each pattern of each rule.
func linear(rules []*Rule, api string) []string {
	var out []string
	for _, r := range rules {
		best := -1
		for i, a := range r.match.apis {
			if !verdict.MatchAPI(a.pattern, api) {
				continue
			}
			exact := !strings.Contains(a.pattern, "*")
			if best < 0 || exact || len(a.pattern) > len(r.match.apis[best].pattern) {
				best = i
			}
			if exact {
				break
			}
		}
		if best >= 0 {
			out = append(out, fmt.Sprintf("%d×%d", r.Index, r.match.apis[best].weight))
		}
	}
	return out
}

func TestIndexIsAsALinearSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`(a|b|ab)?(\.(a|b|ba)?){0,3}`)
		pattern := rapid.StringMatching(`[ab]?\*?[ab]?(\.\*?[ab]?\*?){0,2}`).
			Filter(func(s string) bool { return s != "" && !strings.Contains(s, "**") })
		var rules []*Rule
		for i := range rapid.IntRange(1, 12).Draw(t, "rules") {
			r := &Rule{Index: i}
			for _, p := range rapid.SliceOfNDistinct(pattern, 1, 5, rapid.ID).Draw(t, "patterns") {
				r.match.apis = append(r.match.apis, apiWeight{p, int64(len(r.match.apis) + 1)})
			}
			rules = append(rules, r)
		}
		m := (&Set{Rules: rules, index: indexAPIs(rules)}).NewMatcher()
		for _, api := range rapid.SliceOfN(name, 1, 5).Draw(t, "apis") {
			var got []string
			for _, entry := range m.apis.find(api) {
				got = append(got, fmt.Sprintf("%d×%d", entry.rule.Index, entry.weight))
			}
			if want := linear(rules, api); !slices.Equal(got, want) {
				t.Fatalf("%q: got %v, want %v", api, got, want)
			}
		}
	})
}

func TestTheExactNamesWeightWinsThenTheLongestPatterns(t *testing.T) {
	set := compileRules(t, ruleYAML("writes", `match: {api: {"*": 1, "order.*": 2, "order.c*": 3, order.create: 4}}`))
	m := set.NewMatcher()
	for api, want := range map[string]string{
		"order.create": "4", "order.cancel": "3", "order.update": "2", "login": "1",
	} {
		got := showWorks(m.Match(&event.Event{API: api, UID: "u", Cost: event.One}, 0))
		if got != "uid=u writes="+want {
			t.Errorf("%s: %s", api, got)
		}
	}
}

func TestRulesOfOneKeyShareOneWork(t *testing.T) {
	set := compileRules(t, ruleYAML("a", "match: {api: x}")+
		ruleYAML("by-ip", "match: {api: x}, key: ip")+
		"    - {name: b, match: {api: \"*\"}, limits: [{name: s, limit: 5, per: 1s}, {name: m, limit: 9, per: 1m}], then: {block: until-reset}}\n"+
		ruleYAML("both", "match: {api: x}, key: [uid, attrs.campaign]")+
		ruleYAML("net", "match: {api: x}, key: ip/64"))
	e := &event.Event{
		API: "x", UID: "a/b", IP: netip.MustParseAddr("2001:db8::1"), Cost: 2 * event.One,
		Attrs: []event.Attr{{Name: "campaign", Value: event.Value{Text: "c&1"}}},
	}
	m := set.NewMatcher()
	works := m.Match(e, 0)
	const want = "uid=a%2Fb a=2; uid=a%2Fb b/s=2; uid=a%2Fb b/m=2; ip=2001%3Adb8%3A%3A1 by-ip=2; " +
		"attrs.campaign=c%261&uid=a%2Fb both=2; ip/64=2001%3Adb8%3A%3A%2F64 net=2"
	if got := showWorks(works); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, w := range works {
		want := event.Murmur2(w.Key)
		if w.Shape.HasUID {
			want = event.Murmur2([]byte("a/b"))
		}
		if w.Hash != want {
			t.Errorf("%s: hash %#x, want %#x", w.Key, w.Hash, want)
		}
	}
	e.IP, e.Attrs = netip.Addr{}, nil
	if got := showWorks(m.Match(e, 0)); got != "uid=a%2Fb a=2; uid=a%2Fb b/s=2; uid=a%2Fb b/m=2" {
		t.Errorf("without ip and attribute: %s", got)
	}
	e.UID = ""
	if got := showWorks(m.Match(e, 0)); got != "" {
		t.Errorf("without any dimension: %s", got)
	}
}

// What is not escaped by event.AppendDim here is escaped by hand.
func TestAddressesInKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0, 1, 0xab, 255}), 16, 16).Draw(t, "address")
		ip, _ := netip.AddrFromSlice(raw)
		if rapid.Bool().Draw(t, "v4") {
			ip, _ = netip.AddrFromSlice(raw[:4])
		}
		ip = ip.Unmap()
		network := ip.String()
		if ip.Is6() {
			network = netip.PrefixFrom(ip, 64).Masked().String()
		}
		set := &Set{Shapes: []*KeyShape{newShape([]string{"ip", "ip/64"})}}
		m := set.NewMatcher()
		m.begin()
		var got shapeKey
		m.keys.make(&got, &event.Event{IP: ip}, set.Shapes[0])
		want := event.AppendDim(event.AppendDim(nil, "ip", ip.String()), "ip/64", network)
		if string(got.text) != string(want) {
			t.Fatalf("got %s, want %s", got.text, want)
		}
	})
}

func TestOutcomeAndAttributesAreValuesOrLists(t *testing.T) {
	set := compileRules(t, ruleYAML("one", "match: {api: x, outcome: success}")+
		ruleYAML("list", "match: {api: x, outcome: [denied, failure, '']}")+
		ruleYAML("attrs", "match: {api: x, attrs: {n: [1.0, 2e3, .5], ok: true}, attrs.s: '42'}"))
	m := set.NewMatcher()
	match := func(outcome string, attrs ...event.Attr) string {
		var names []string
		for _, w := range m.Match(&event.Event{API: "x", UID: "u", Outcome: outcome, Cost: event.One, Attrs: attrs}, 0) {
			for _, h := range w.Hits {
				names = append(names, h.Limit.Name)
			}
		}
		return strings.Join(names, " ")
	}
	attrs := func(n, ok, s string) []event.Attr {
		return []event.Attr{
			{Name: "n", Value: event.Value{Kind: event.Number, Text: n}},
			{Name: "ok", Value: event.Value{Kind: event.Bool, Text: ok}},
			{Name: "s", Value: event.Value{Text: s}},
		}
	}
	for _, test := range []struct{ got, want string }{
		{match("success"), "one"},
		{match("denied"), "list"},
		{match(""), "list"},
		{match("other"), ""},
		{match("other", attrs("1", "true", "42")...), "attrs"},
		{match("other", attrs("2000", "true", "42")...), "attrs"},
		{match("other", attrs("0.5", "true", "42")...), "attrs"},
		{match("other", attrs("1", "false", "42")...), ""},
		{match("other", attrs("3", "true", "42")...), ""},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}

func TestANegativeCostMatchesNothing(t *testing.T) {
	set := compileRules(t, ruleYAML("a", `match: {api: "*"}`))
	m := set.NewMatcher()
	if got := m.Match(&event.Event{API: "x", UID: "u", Cost: -event.One, Refunds: "e1"}, 0); len(got) > 0 {
		t.Error(showWorks(got))
	}
}

func TestEventTime(t *testing.T) {
	const broker = 1000 * event.Hour
	set := &Set{MaxLateness: event.Hour}
	now := &Set{MaxLateness: event.Hour, TooOldNow: true}
	type result struct {
		at event.Micros
		ok bool
	}
	for _, test := range []struct {
		what        string
		set         *Set
		own, broker event.Micros
		want        result
	}{
		{"its own time", set, broker - 5, broker, result{broker - 5, true}},
		{"no own time", set, event.NoTime, broker, result{broker, true}},
		{"a clock that runs ahead", set, broker + 5, broker, result{broker, true}},
		{"just young enough", set, broker - event.Hour, broker, result{broker - event.Hour, true}},
		{"too old", set, broker - event.Hour - 1, broker, result{broker - event.Hour - 1, false}},
		{"too old, taken as now", now, broker - event.Hour - 1, broker, result{broker, true}},
		{"far too old", set, event.NoTime + 1, broker, result{event.NoTime + 1, false}},
		{"a file to replay", set, 7, event.NoTime, result{7, true}},
		{"no time at all", set, event.NoTime, event.NoTime, result{event.NoTime, false}},
	} {
		at, ok := test.set.EventTime(&event.Event{Time: test.own}, test.broker)
		if got := (result{at, ok}); got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.what, got, test.want)
		}
	}
}

// What Match returns for one event does not depend on those before it.
func TestAMatcherForgetsTheLastEvent(t *testing.T) {
	set := compileRules(t, ruleYAML("sum", "match: {api: up.*}, count: {sum: attrs.bytes}, when: attrs.plan != nil")+
		ruleYAML("ip", `match: {api: "*"}, key: [ip, attrs.plan]`)+ruleYAML("uid", "match: {api: {login: 3, up.a: 2}}"))
	shared := set.NewMatcher()
	rapid.Check(t, func(t *rapid.T) {
		e := &event.Event{
			API:  rapid.SampledFrom([]string{"up.a", "up.b", "login", "other"}).Draw(t, "api"),
			UID:  rapid.SampledFrom([]string{"", "1", "two"}).Draw(t, "uid"),
			Cost: event.Decimal(rapid.SampledFrom([]int{0, 500_000, 1_000_000, -1}).Draw(t, "cost")),
		}
		if rapid.Bool().Draw(t, "ip") {
			e.IP = netip.MustParseAddr("192.0.2.1")
		}
		for _, name := range []string{"plan", "bytes"} {
			if text := rapid.SampledFrom([]string{"", "1", "-2", "3.5"}).Draw(t, name); text != "" {
				e.Attrs = append(e.Attrs, event.Attr{Name: name, Value: event.Value{Kind: event.Number, Text: text}})
			}
		}
		fresh := set.NewMatcher()
		want, got := showWorks(fresh.Match(e, 0)), showWorks(shared.Match(e, 0))
		sameSkips := len(fresh.Skipped) == len(shared.Skipped) &&
			(len(fresh.Skipped) == 0 || reflect.DeepEqual(fresh.Skipped, shared.Skipped))
		if got != want || !sameSkips {
			t.Fatalf("got %s %v\nwant %s %v", got, shared.Skipped, want, fresh.Skipped)
		}
	})
}

func TestMatchAllocatesNothing(t *testing.T) {
	set := compileRules(t, ruleYAML("search", "match: {api: [search.query, search.suggest]}")+
		ruleYAML("all", `match: {api: "*", outcome: success, attrs: {plan: pro}}, key: [ip/64, attrs.device]`)+
		ruleYAML("bytes", `match: {api: search.*}, count: {sum: attrs.bytes}, key: [uid, ip]`)+
		ruleYAML("together", `match: {api: "*"}, key: all`)+ruleYAML("each", `match: {api: "*"}, key: [api, ip/24/56]`))
	m := set.NewMatcher()
	e := &event.Event{
		API: "search.query", UID: strings.Repeat("user", 20), Outcome: "success", Cost: event.One,
		IP: netip.MustParseAddr("2001:db8:1111:2222:3333:4444:5555:6666"),
		Attrs: []event.Attr{
			{Name: "plan", Value: event.Value{Text: "pro"}},
			{Name: "device", Value: event.Value{Text: strings.Repeat("d", 100)}},
			{Name: "bytes", Value: event.Value{Kind: event.Number, Text: "2048.5"}},
		},
	}
	if got := len(m.Match(e, 0)); got != 5 {
		t.Fatalf("%d works", got)
	}
	if n := testrun.Allocs(1000, func() { m.Match(e, 0) }); n > 0 {
		t.Errorf("%v allocations an event", n)
	}
}
