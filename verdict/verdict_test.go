package verdict

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func micros(t testing.TB, text string) event.Micros {
	t.Helper()
	m, err := event.ParseMicros(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func samples(t testing.TB) []Verdict {
	since, until := micros(t, "2026-11-21T10:00:01.5Z"), micros(t, "2026-11-21T10:05:01.5Z")
	block := Verdict{
		Rule: "search-combined", Key: []event.Dim{{Name: "uid", Value: "42"}}, State: Block, Mode: Enforce, Action: ActBlock,
		APIs: []string{"search.query", "search.suggest"}, Count: 101 * event.One, Limit: 100 * event.One,
		Since: since, Until: until, Seq: 118204, Cause: Cause{ID: "01J8Z3K4M5", Partition: 3, Offset: 118},
	}
	cleared := block
	cleared.State, cleared.Until, cleared.Seq = Clear, since, 118301
	warn := Verdict{
		Rule: "uploads/hourly", Key: []event.Dim{{Name: "attrs.plan", Value: "a|b&c=d %é\x00"}, {Name: "ip/64", Value: "2001:db8::/64"}},
		State: Warn, Mode: Shadow, Action: ActThrottle, APIs: []string{"upload.*"}, Count: event.One / 2, Limit: 1048576*event.One + 1,
		Since: since, Until: until, Seq: 1, Step: "50%", Cause: Cause{Partition: 0, Offset: 0},
	}
	named := block
	named.Public = "searches"
	throttled := block
	throttled.Action, throttled.Per = ActThrottle, 10*event.Second+event.Millisecond
	left := named
	left.State, left.Count, left.Per, left.Seq, left.Cause = Left, 63*event.One, event.Minute, 0, Cause{}
	traced := block
	traced.Trace, _ = event.ParseTrace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	return []Verdict{block, cleared, warn, named, throttled, left, traced}
}

// TestWire holds the wire form, the record key on one line and the value on the next, against
// testdata/verdicts.txt.
func TestWire(t *testing.T) {
	const file = "testdata/verdicts.txt"
	var out strings.Builder
	for _, v := range samples(t) {
		out.Write(AppendRecordKey(nil, &v))
		out.WriteByte('\n')
		out.Write(AppendJSON(nil, &v))
		out.WriteByte('\n')
	}
	testrun.Golden(t, file, out.String())
}

func TestParseReadsWhatAppendJSONWrote(t *testing.T) {
	for _, v := range samples(t) {
		got, err := Parse(AppendJSON(nil, &v))
		if err != nil || !reflect.DeepEqual(got, v) {
			t.Errorf(" got %+v, %v\nwant %+v", got, err, v)
		}
		key, err := ParseRecordKey(AppendRecordKey(nil, &v))
		want := RecordKey{Text: v.KeyText(), Key: v.Key, Rule: v.Rule, Warn: v.State == Warn, Left: v.State == Left}
		if err != nil || !reflect.DeepEqual(key, want) {
			t.Errorf(" got %+v, %v\nwant %+v", key, err, want)
		}
	}
}

// A page of verdicts, as an HTTP answer holds it.
func TestEncodingJSON(t *testing.T) {
	want := samples(t)
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got []Verdict
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s\n got %+v, %v\nwant %+v", text, got, err, want)
	}
}

func TestInterval(t *testing.T) {
	for _, c := range []struct {
		limit event.Decimal
		per   event.Micros
		want  event.Micros
	}{
		{10 * event.One, 10 * event.Second, event.Second},
		{100 * event.One, event.Minute, 600 * event.Millisecond},
		{3 * event.One, event.Second, 333_333},
		{event.One / 2, event.Minute, 2 * event.Minute},
		{20 * event.One, 0, 50 * event.Millisecond},           // of an older program
		{0, 0, 100 * event.Millisecond},                       // no limit
		{1 << 40 * event.One, event.Second, 1},                // bytes, say
		{1, math.MaxInt64, math.MaxInt64},                     // longer than time
		{event.One / 1000, math.MaxInt64 / 10, math.MaxInt64}, // the same
		{event.MaxDecimal, 1 << 58, 31_250},                   // nothing overflows
	} {
		v := Verdict{Limit: c.limit, Per: c.per}
		if got := v.Interval(); got != c.want {
			t.Errorf("%v in %v µs: %d µs, want %d", c.limit, c.per, got, c.want)
		}
	}
}

// The fast path is the one that our own verdicts take.
func TestParseKnowsItsOwn(t *testing.T) {
	for i, v := range samples(t) {
		own := i != 2 // that one has escapes
		if _, ok := parseKnown(string(AppendJSON(nil, &v))); ok != own {
			t.Errorf("verdict %d: known %v", i, ok)
		}
	}
}

func TestParseTakesWhatOthersWrite(t *testing.T) {
	v, err := Parse([]byte(` {"until":"2026-11-21T18:05:01.5+08:00","since":"2026-11-21T10:00:01.500000000Z","state":"block",
		"rule":"r","key":{"uid":"1","attrs.b":"2"},"limit":1.50,"count":2e0,"apis":null,"comment":{"a":[1]}}`))
	want := Verdict{Rule: "r", Key: []event.Dim{{Name: "attrs.b", Value: "2"}, {Name: "uid", Value: "1"}}, Action: ActBlock,
		Count: 2 * event.One, Limit: event.One * 3 / 2,
		Since: micros(t, "2026-11-21T10:00:01.5Z"), Until: micros(t, "2026-11-21T10:05:01.5Z")}
	if err != nil || !reflect.DeepEqual(v, want) {
		t.Errorf(" got %+v, %v\nwant %+v", v, err, want)
	}
}

func TestParseRefuses(t *testing.T) {
	const good = `{"rule":"r","key":{"uid":"1"},"state":"block","since":"2026-11-21T10:00:00Z","until":"2026-11-21T10:00:00Z"}`
	if _, err := Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{`{"rule"`, `"rule"`},
		{`"rule":"r",`, ``},
		{`{"uid":"1"}`, `{}`},
		{`{"uid":"1"}`, `{"uid":""}`},
		{`{"uid":"1"}`, `{"uid":1}`},
		{`"block"`, `"blocked"`},
		{`"state":"block",`, ``},
		{`"state":"block"`, `"state":"block","mode":"off"`},
		{`"state":"block"`, `"state":"block","action":"deny"`},
		{`"state":"block"`, `"state":"block","count":0.0000001`},
		{`"state":"block"`, `"state":"block","seq":1.5`},
		{`"state":"block"`, `"state":"block","per":-1`},
		{`"state":"block"`, `"state":"block","per":"10s"`},
		{`"since":"2026-11-21T10:00:00Z",`, ``},
		{`"until":"2026-11-21T10:00:00Z"`, `"until":null`},
		{`"until":"2026-11-21T10:00:00Z"`, `"until":"tomorrow"`},
		{`"until":"2026-11-21T10:00:00Z"`, `"until":7`},
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		if v, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s became %+v", text, v)
		}
	}
}

func TestRecordKeysThatAreNone(t *testing.T) {
	for _, key := range []string{"", "uid=42", "uid=42|", "uid=42||warn", "|rule", "uid=|rule", "uid=%4|rule", "uid=42|a|b", "\x00fence"} {
		if k, err := ParseRecordKey([]byte(key)); err == nil {
			t.Errorf("%q became %+v", key, k)
		}
	}
	if !OwnRecord([]byte("\x00fence")) || OwnRecord([]byte("uid=42|r")) || OwnRecord(nil) {
		t.Error("OwnRecord is wrong")
	}
}

func TestNames(t *testing.T) {
	for _, s := range []State{Block, Clear, Warn, Left} {
		if got, err := ParseState(s.String()); got != s || err != nil {
			t.Errorf("%v became %v, %v", s, got, err)
		}
	}
	for _, m := range []Mode{Enforce, Shadow} {
		if got, err := ParseMode(m.String()); got != m || err != nil {
			t.Errorf("%v became %v, %v", m, got, err)
		}
	}
	for _, a := range []Action{ActLog, ActThrottle, ActChallenge, ActBlock} {
		if got, err := ParseAction(a.String()); got != a || err != nil {
			t.Errorf("%v became %v, %v", a, got, err)
		}
	}
	if _, err := ParseState("Block"); err == nil || State(9).String() != "unknown(9)" {
		t.Errorf("an unknown state: %v, %v", err, State(9))
	}
}

func TestMatchAPI(t *testing.T) {
	for _, c := range []struct {
		pattern, api string
		want         bool
	}{
		{"up", "up", true},
		{"up", "up.a", false},
		{"up.*", "up.a", true},
		{"up.*", "up.a.b", true},
		{"up.*", "up", false},
		{"up*", "up", true},
		{"up*", "upload.a", true},
		{"*", "", true},
		{"*", "a.b.c", true},
		{"*.get", "a.get", true},
		{"*.get", "a.b.get", false},
		{"*.get", ".get", true},
		{"a.*.c", "a.b.c", true},
		{"a.*.c", "a.b.b.c", false},
		{"a.*.c", "a.c", false},
		{"a*c.d", "abcbc.d", true},
		{"a*c.d", "a.c.d", false},
		{"*a*b.c", "xaxbab.c", true},
		{"*a*b.c", "xaxba.c", false},
		{"a.**", "a.b.c", true},
		{"**.b", "aa.b", true},
		{"a.*.*", "a.b.c.d", true},
		{"a.*.*", "a.b", false},
		{"", "", true},
		{"", "a", false},
		{"*a", "b", false},
	} {
		if got := MatchAPI(c.pattern, c.api); got != c.want {
			t.Errorf("MatchAPI(%q, %q) = %v", c.pattern, c.api, got)
		}
		if got := refMatch(c.pattern, c.api); got != c.want {
			t.Errorf("the reference says %v of %q, %q", got, c.pattern, c.api)
		}
		if got := (&Verdict{APIs: []string{"none", c.pattern}}).Covers(c.api); got != c.want {
			t.Errorf("Covers(%q) with %q = %v", c.api, c.pattern, got)
		}
	}
}

// refMatch is MatchAPI as one would say it, exponential in the number of stars.
func refMatch(pattern, api string) bool {
	if pattern == "" {
		return api == ""
	}
	if pattern[0] != '*' {
		return api != "" && api[0] == pattern[0] && refMatch(pattern[1:], api[1:])
	}
	if pattern == "*" {
		return true
	}
	for i := 0; ; i++ {
		if refMatch(pattern[1:], api[i:]) {
			return true
		}
		if i == len(api) || api[i] == '.' {
			return false
		}
	}
}

func FuzzMatchAPI(f *testing.F) {
	f.Add("a.*b*.c*", "a.bb.c.d")
	f.Add("*a*b", "aab")
	f.Fuzz(func(t *testing.T, pattern, api string) {
		if strings.Count(pattern, "*") > 5 || len(api) > 50 {
			return
		}
		if got, want := MatchAPI(pattern, api), refMatch(pattern, api); got != want {
			t.Fatalf("MatchAPI(%q, %q) = %v", pattern, api, got)
		}
	})
}

// FuzzParse: what Parse reads, AppendJSON writes so that it reads the same; so with record keys.
func FuzzParse(f *testing.F) {
	for _, v := range samples(f) {
		f.Add(AppendJSON(nil, &v))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Parse(data)
		slow, errSlow := parseAny(data)
		if (err == nil) != (errSlow == nil) || (err == nil && !reflect.DeepEqual(v, slow)) {
			t.Fatalf("%s\nis %+v, %v\nby encoding/json %+v, %v", data, v, err, slow, errSlow)
		}
		if err != nil {
			return
		}
		text := AppendJSON(nil, &v)
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if len(v.APIs) == 0 {
			v.APIs, again.APIs = nil, nil
		}
		if !reflect.DeepEqual(v, again) {
			t.Fatalf("through %s\n got %+v\nwant %+v", text, again, v)
		}
		if strings.Contains(v.Rule, "|") {
			return
		}
		key, err := ParseRecordKey(AppendRecordKey(nil, &v))
		if err != nil || key.Rule != v.Rule || key.Warn != (v.State == Warn) || key.Left != (v.State == Left) || !reflect.DeepEqual(key.Key, v.Key) {
			t.Fatalf("record key of %s: %+v, %v", text, key, err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	v := samples(b)[0]
	text := AppendJSON(nil, &v)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	v := samples(b)[0]
	var text []byte
	b.ReportAllocs()
	for b.Loop() {
		text = AppendJSON(text[:0], &v)
	}
}
