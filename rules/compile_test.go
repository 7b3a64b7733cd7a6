package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
	"github.com/tallygate/tallygate/windows"
)

func TestLimitsAndWindows(t *testing.T) {
	shanghai, err := windows.LoadZone("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	const hour, day = event.Hour, event.Day
	for _, test := range []struct {
		fields      string
		limit       string
		window      windows.Spec
		least, most event.Micros
		grain       event.Micros
	}{
		{"limit: 100, per: 1m", "100",
			windows.Spec{Kind: windows.Sliding, Per: event.Minute, Resolution: event.Second}, event.Minute, event.Minute, event.Second},
		{"limit: 64, per: 1m", "64",
			windows.Spec{Kind: windows.Sliding, Per: event.Minute, Exact: true}, event.Minute, event.Minute, event.Second},
		{"limit: 64, per: 1m, count: {sum: cost}", "64",
			windows.Spec{Kind: windows.Sliding, Per: event.Minute, Resolution: event.Second}, event.Minute, event.Minute, event.Second},
		{"limit: 1.5, per: 1s, count: {sum: attrs.b}", "1.5",
			windows.Spec{Kind: windows.Sliding, Per: event.Second, Resolution: 16_666}, event.Second, event.Second, 100 * event.Millisecond},
		{"limit: 1.5k, per: 1h30m, resolution: 10m", "1500",
			windows.Spec{Kind: windows.Sliding, Per: 90 * event.Minute, Resolution: 10 * event.Minute}, 90 * event.Minute, 90 * event.Minute, 90 * event.Second},
		{"limit: 1MiB, per: 1d, window: tumbling, offset: 16h", "1048576",
			windows.Spec{Kind: windows.Tumbling, Per: day, Offset: 16 * hour}, day, day, 24 * event.Minute},
		{"limit: 2MB, per: day, window: calendar, timezone: Asia/Shanghai", "2000000",
			windows.Spec{Kind: windows.Calendar, Unit: windows.Day, Zone: shanghai}, 23 * hour, 26 * hour, 23 * event.Minute},
		{"limit: 9000G, per: week, window: calendar", "9000000000000",
			windows.Spec{Kind: windows.Calendar, Unit: windows.Week, Zone: time.UTC, WeekStarts: time.Monday}, 7*day - hour, 7*day + 2*hour, (7*day - hour) / 60},
		{"limit: 1, per: year, window: calendar, anchor: 2026-02-28, offset: 5h", "1",
			windows.Spec{Kind: windows.Calendar, Unit: windows.Year, Zone: time.UTC, FirstDay: 28, FirstMonth: 2, Offset: 5 * hour},
			365*day - hour, 366*day + 2*hour, (365*day - hour) / 60},
		{"limit: 1, per: week, window: calendar, week_starts: sunday", "1",
			windows.Spec{Kind: windows.Calendar, Unit: windows.Week, Zone: time.UTC}, 7*day - hour, 7*day + 2*hour, (7*day - hour) / 60},
		{"limit: 1, per: 1h, window: hopping, every: 5m", "1",
			windows.Spec{Kind: windows.Hopping, Per: hour, Every: 5 * event.Minute}, hour, hour, 5 * event.Minute},
		{"limit: 1, per: 1h, window: hopping, every: 5m, offset: 2m", "1", // all ends are at multiples of the grain
			windows.Spec{Kind: windows.Hopping, Per: hour, Every: 5 * event.Minute, Offset: 2 * event.Minute}, hour, hour, event.Minute},
		{"limit: 1, per: 1s, window: hopping, every: 10ms", "1",
			windows.Spec{Kind: windows.Hopping, Per: event.Second, Every: 10 * event.Millisecond}, event.Second, event.Second, 100 * event.Millisecond},
	} {
		set := compileRules(t, "    - {name: r, match: {api: x}, then: {block: 5m}, "+test.fields+"}\n")
		l := set.Limits[0]
		test.window.Lateness = event.Hour
		got := fmt.Sprintf("%s %+v %d %d %d", l.Limit, l.Window, l.PerMin, l.PerMax, l.Grain)
		want := fmt.Sprintf("%s %+v %d %d %d", test.limit, test.window, test.least, test.most, test.grain)
		if strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") || l.Window.Zone.String() != test.window.Zone.String() {
			t.Errorf("%s:\ngot  %s\nwant %s", test.fields, got, want)
		}
	}
}

func TestAWholeSet(t *testing.T) {
	set, err := Compile("shop.yaml", []byte(header+`
  defaults: {key: ip, window: tumbling, mode: shadow, timezone: Europe/Berlin, week_starts: sunday, then: {block: 1m}}
  max_lateness: 2h
  too_old: now
  recent_ids: {count: 8, for: 1m}
  rules:
    - {name: a, match: {api: [x, y.*]}, limit: 5, per: 1s}
    - name: b
      key: [uid, ip]
      match: {api: x}
      mode: enforce
      per: 1h
      limits: [{name: s, limit: 5, per: 1s}, {name: h, limit: 7}, {name: w, limit: 9, per: week, window: calendar}]
      then: {block: until-reset, action: challenge, apis: z}
`))
	if err != nil {
		t.Fatal(err)
	}
	if set.Name != "test" || set.MaxLateness != 2*event.Hour || !set.TooOldNow || set.RecentIDs != 8 || set.RecentFor != event.Minute {
		t.Errorf("settings: %+v", set)
	}
	a, b := set.Rules[0], set.Rules[1]
	if a.Mode != verdict.Shadow || b.Mode != verdict.Enforce {
		t.Errorf("modes: %v %v", a.Mode, b.Mode)
	}
	if diff := cmp.Diff([]Then{
		{Steps: []event.Micros{event.Minute}, Action: verdict.ActBlock}, {UntilReset: true, Action: verdict.ActChallenge},
	}, []Then{a.Then, b.Then}); diff != "" {
		t.Errorf("then (- want):\n%s", diff)
	}
	if fmt.Sprint(a.APIs, b.APIs) != "[x y.*] [z]" {
		t.Errorf("apis: %v %v", a.APIs, b.APIs)
	}
	if fmt.Sprint(a.Shape.Dims, a.Shape.HasUID, b.Shape.Dims, b.Shape.HasUID) != "[ip] false [ip uid] true" {
		t.Errorf("shapes: %+v %+v", a.Shape, b.Shape)
	}
	for i, name := range []string{"a", "b/s", "b/h", "b/w"} {
		if l := set.Limits[i]; l.Name != name || l.Index != i || set.byHash.of(l.Hash) != l {
			t.Errorf("limit %d: %+v", i, l)
		}
	}
	if h, w := set.Limits[2].Window, set.Limits[3].Window; h.Per != event.Hour || h.Kind != windows.Tumbling ||
		w.Unit != windows.Week || w.WeekStarts != time.Sunday || w.Zone.String() != "Europe/Berlin" {
		t.Errorf("windows: %+v %+v", h, w)
	}
}

// What gives counters their meaning is in their name; nothing else is.
func TestSectionHash(t *testing.T) {
	hash := func(fields string) SectionHash {
		set := compileRules(t, "    - {"+fields+"}\n")
		return set.Limits[0].Hash
	}
	const base = "name: r, match: {api: x}, then: {block: 5m}, limit: 100, per: 1m"
	for _, same := range []string{
		"name: r, match: {api: y, outcome: z}, when: cost > 1, then: {block: until-reset}, limit: 200, per: 60s, mode: shadow",
		base + ", resolution: 1s",
		base + ", key: [uid]",
	} {
		if hash(same) != hash(base) {
			t.Errorf("another hash: %s", same)
		}
	}
	seen := map[SectionHash]string{}
	for _, fields := range []string{
		base,
		strings.Replace(base, "name: r", "name: s", 1),
		strings.Replace(base, "per: 1m", "per: 2m", 1),
		strings.Replace(base, "limit: 100", "limit: 10", 1), // exact times, no panes
		base + ", key: ip",
		base + ", key: ip/64",
		base + ", resolution: 2s",
		base + ", count: {sum: cost}",
		base + ", count: {sum: attrs.x}",
		base + ", window: tumbling",
		base + ", window: tumbling, offset: 1s",
		strings.Replace(base, "per: 1m", "per: day, window: calendar", 1),
		strings.Replace(base, "per: 1m", "per: day, window: calendar, timezone: Asia/Tokyo", 1),
		strings.Replace(base, "per: 1m", "per: day, window: calendar, timezone: Asia/Seoul", 1),
		strings.Replace(base, "per: 1m", "per: week, window: calendar", 1),
		strings.Replace(base, "per: 1m", "per: week, window: calendar, week_starts: sunday", 1),
	} {
		h := hash(fields)
		if other, twice := seen[h]; twice {
			t.Errorf("one hash for\n  %s\n  %s", other, fields)
		}
		seen[h] = fields
	}
}

func TestSetHashIsOfTheSource(t *testing.T) {
	a, b := compileRules(t, ruleYAML("a", "match: {api: x}")), compileRules(t, ruleYAML("b", "match: {api: x}"))
	if a.Hash == b.Hash || a.Hash != compileRules(t, ruleYAML("a", "match: {api: x}")).Hash {
		t.Errorf("%x %x", a.Hash, b.Hash)
	}
}

func TestLargestState(t *testing.T) {
	set := compileRules(t, ruleYAML("a", "match: {api: x}"))
	one, dims := set.LargestState()
	if fmt.Sprint(dims) != "[uid]" || one < 64*8 || one > 8<<10 {
		t.Errorf("%d bytes for %v", one, dims)
	}
	set = compileRules(t, ruleYAML("a", "match: {api: x}")+ruleYAML("b", "match: {api: y}, key: ip")+
		ruleYAML("c", "match: {api: z}, key: ip, resolution: 100ms"))
	if more, dims := set.LargestState(); fmt.Sprint(dims) != "[ip]" || more <= 2*(one-64*18) {
		t.Errorf("%d bytes for %v, after %d", more, dims, one)
	}
}

func TestAliasesWork(t *testing.T) {
	set := compileRules(t, "    - {name: a, match: &m {api: [x, y]}, limit: 5, per: &p 1s, then: &t {block: 5m}}\n"+
		"    - {name: b, match: *m, limit: 5, per: *p, then: *t}\n")
	if b := set.Rules[1]; fmt.Sprint(b.APIs) != "[x y]" || b.Limits[0].Window.Per != event.Second {
		t.Errorf("%+v", b)
	}
}

// Files that are made to hurt are refused, at once.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	bomb := "    - &r0 {name: a, match: {api: [" + strings.Repeat("x, ", 1000) + "]}}\n"
	lists := "a: &a [" + strings.Repeat("x,", 100) + "]\n"
	for c := 'b'; c < 'k'; c++ {
		lists += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 100))
	}
	for name, src := range map[string]string{
		"too large":     header + strings.Repeat("#", 1<<20),
		"flow depth":    strings.Repeat("[", 100_000),
		"block depth":   strings.Repeat("- ", 100_000),
		"alias bomb":    lists,
		"rules bomb":    header + "  rules:\n" + bomb + strings.Repeat("    - *r0\n", 50_000),
		"alias to self": header + "  rules: &r\n    - *r\n",
		"itself as key": "&a {*a : *a}",
		"many mistakes": header + "  rules:\n" + strings.Repeat("    - 1\n", 10_000),
		"one long line": header + "  rules: [" + strings.Repeat("{},", 100_000) + "]\n",
		"binary":        "\x7fELF\x00\x01",
		"utf-16":        "\xff\xfea\x00p\x00i\x00",
	} {
		_, err := Compile("x.yaml", []byte(src))
		if err == nil {
			t.Errorf("%s: compiled", name)
			continue
		}
		if text := err.Error(); len(text) > 64<<10 {
			t.Errorf("%s: %d bytes of error", name, len(text))
		}
	}
}

func TestErrorsUnwrap(t *testing.T) {
	_, err := Compile("x.yaml", []byte(header+"  rules:\n    - {name: r, limt: 5}\n"))
	mistake, ok := errors.AsType[*Error](err)
	if !ok || mistake.File != "x.yaml" || mistake.Line != 6 || mistake.Column != 7 || mistake.Rule != "r" {
		t.Fatalf("%+v", mistake)
	}
	mistakes, ok := errors.AsType[Errors](err)
	if !ok || len(mistakes) != 4 {
		t.Fatalf("%d mistakes in\n%v", len(mistakes), err)
	}
}

func TestAFileOfAnotherKindDoesNotFillTheScreen(t *testing.T) {
	_, err := Compile("x.yaml", []byte(header+"  rules:\n"+strings.Repeat("    - 1\n", 500)))
	if text := err.Error(); !strings.HasSuffix(text, "\nand 400 more") {
		t.Errorf("ends with %q", text[max(0, len(text)-80):])
	}
}

// lineEnds are the ends of lines that YAML knows.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

// FuzzCompile: whatever a file holds, Compile answers with a set or with mistakes that have a
// place in it; and what it compiles can be matched.
func FuzzCompile(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		set, err := Compile("fuzz.yaml", src)
		if err == nil {
			set.LargestState()
			e := &event.Event{API: "order.create", UID: "u", Outcome: "success", Cost: event.One}
			set.NewMatcher().Match(e, 0)
			e.Outcome = ""
			for _, w := range append(NewRequests(set.Strict()).Wants(e, event.NoTime), NewRequests(set.Instance).Wants(e, 0)...) {
				if w.Amount <= 0 || w.Threshold < 0 || w.Limit.Rule.counted() != (set.Limits[min(w.Limit.Index, len(set.Limits)-1)] == w.Limit) {
					t.Fatalf("%+v of %s", w, w.Limit.Name)
				}
			}
			return
		}
		mistakes, ok := errors.AsType[Errors](err)
		if !ok || len(mistakes) == 0 {
			t.Fatalf("not Errors: %v", err)
		}
		lines := 1 + strings.Count(lineEnds.Replace(string(src)), "\n")
		for _, m := range mistakes {
			if m.Line < 1 || m.Line > lines+1 || m.Column < 1 || m.Message == "" || m.Error() == "" {
				t.Fatalf("%+v", m)
			}
		}
	})
}
