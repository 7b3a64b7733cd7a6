package accesslog

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tallygate/tallygate/event"
)

// readAll returns what the events are, without their ids, and the errors.
func readAll(t *testing.T, format Format, input string) (events []event.Event, errs []string) {
	t.Helper()
	r := NewReader(strings.NewReader(input), format)
	for {
		e, line, err := r.Next()
		var wrong *LineError
		switch {
		case errors.Is(err, io.EOF):
			if r.Skipped() != len(errs) {
				t.Errorf("Skipped() = %d after %d errors", r.Skipped(), len(errs))
			}
			return events, errs
		case errors.As(err, &wrong):
			if wrong.Line != line {
				t.Errorf("the error is about line %d, Next about %d", wrong.Line, line)
			}
			errs = append(errs, err.Error())
		case err != nil:
			t.Fatal(err)
		default:
			if err := e.Validate(); err != nil {
				t.Errorf("line %d: %v", line, err)
			}
			events = append(events, e.Clone())
		}
	}
}

func TestLines(t *testing.T) {
	for _, c := range []struct {
		name, line, want string
	}{
		{
			"combined",
			`83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /Images/ks-logo.gif?x=1 HTTP/1.1" 200 203023 "http://e.com/" "Mozilla/5.0 (X11)"`,
			`{"time":"2015-05-17T10:05:03Z","uid":"83.149.9.216","api":"get.images.ks-logo-gif","outcome":"success","ip":"83.149.9.216","attrs":{"bytes":203023,"status":200,"agent":"Mozilla/5.0 (X11)"}}`,
		},
		{
			"common, with a user and a zone",
			`127.0.0.1 user-identifier frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326`,
			`{"time":"2000-10-10T20:55:36Z","uid":"frank","api":"get.apache-pb-gif","outcome":"success","ip":"127.0.0.1","attrs":{"bytes":2326,"status":200}}`,
		},
		{
			"IPv6, no bytes, no agent",
			`2001:DB8::1 - - [17/May/2015:10:05:03 +0000] "HEAD / HTTP/2.0" 304 - "-" "-"`,
			`{"time":"2015-05-17T10:05:03Z","uid":"2001:db8::1","api":"get","outcome":"success","ip":"2001:db8::1","attrs":{"bytes":0,"status":304}}`,
		},
		{
			"a virtual host in front",
			`shop.example:443 192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 1 "-" "x"`,
			`{"time":"2015-05-17T10:05:03Z","uid":"192.0.2.1","api":"get.a","outcome":"success","ip":"192.0.2.1","attrs":{"bytes":1,"status":200,"agent":"x"}}`,
		},
		{
			"a virtual host that is an address",
			`10.0.0.5:443 192.0.2.1 - frank [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 1`,
			`{"time":"2015-05-17T10:05:03Z","uid":"frank","api":"get.a","outcome":"success","ip":"192.0.2.1","attrs":{"bytes":1,"status":200}}`,
		},
		{
			"a virtual host, and a list",
			`shop.example:443 203.0.113.9, 192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 1`,
			`{"time":"2015-05-17T10:05:03Z","uid":"192.0.2.1","api":"get.a","outcome":"success","ip":"192.0.2.1","attrs":{"bytes":1,"status":200}}`,
		},
		{
			"a list, in which a client claims to be nobody",
			`nobody, 192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 1`,
			`{"time":"2015-05-17T10:05:03Z","uid":"192.0.2.1","api":"get.a","outcome":"success","ip":"192.0.2.1","attrs":{"bytes":1,"status":200}}`,
		},
		{
			"a port",
			`[2001:db8::1]:40001 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 1`,
			`{"time":"2015-05-17T10:05:03Z","uid":"2001:db8::1","api":"get.a","outcome":"success","ip":"2001:db8::1","attrs":{"bytes":1,"status":200}}`,
		},
		{
			"a user with blanks, brackets and escapes",
			`10.0.0.1 - a [b] \"c\" [17/May/2015:10:05:03 +0000] "POST /login HTTP/1.1" 401 12`,
			`{"time":"2015-05-17T10:05:03Z","uid":"a [b] \"c\"","api":"post.login","outcome":"denied","ip":"10.0.0.1","attrs":{"bytes":12,"status":401}}`,
		},
		{
			"an empty user",
			`10.0.0.1 - "" [17/May/2015:10:05:03 +0000] "POST /login HTTP/1.1" 403 12`,
			`{"time":"2015-05-17T10:05:03Z","uid":"10.0.0.1","api":"post.login","outcome":"denied","ip":"10.0.0.1","attrs":{"bytes":12,"status":403}}`,
		},
		{
			"escapes in the path and the agent; fields behind",
			`10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /a\"b/\xC3\xA9%20c/ HTTP/1.1" 429 1 "\"" "x \"y\" \\ \xe9\t\q" 0.003 "more"`,
			`{"time":"2015-05-17T10:05:03Z","uid":"10.0.0.1","api":"get.a-b.--c","outcome":"limited","ip":"10.0.0.1","attrs":{"bytes":1,"status":429,"agent":"x \"y\" \\ �\u0009\\q"}}`,
		},
		{
			"what a proxy is asked for, and blanks in the path",
			`10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET http://e.com/a b/c?d HTTP/1.1" 500 1`,
			`{"time":"2015-05-17T10:05:03Z","uid":"10.0.0.1","api":"get.a-b.c","outcome":"failure","ip":"10.0.0.1","attrs":{"bytes":1,"status":500}}`,
		},
		{
			"a path that is percent-encoded, and bytes that are no UTF-8",
			`10.0.0.1 - - [17/May/2015:10:05:03 +0000] "HEAD /x/%2e%2e/%73earch;a=1/\xE9\xE9?d HTTP/1.1" 200 1`,
			`{"time":"2015-05-17T10:05:03Z","uid":"10.0.0.1","api":"get.search.--","outcome":"success","ip":"10.0.0.1","attrs":{"bytes":1,"status":200}}`,
		},
		{
			"HTTP/0.9",
			`10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /?q=/a/b" 200 007`,
			`{"time":"2015-05-17T10:05:03Z","uid":"10.0.0.1","api":"get","outcome":"success","ip":"10.0.0.1","attrs":{"bytes":7,"status":200}}`,
		},
		{
			"NDJSON",
			`{"api":"a","id":"7","broker_time":"2015-05-17T10:05:03Z"}`,
			`{"id":"7","api":"a","broker_time":"2015-05-17T10:05:03Z"}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			events, errs := readAll(t, Auto, c.line)
			if len(errs) > 0 || len(events) != 1 {
				t.Fatalf("%d events, errors %v", len(events), errs)
			}
			if c.name != "NDJSON" {
				if len(events[0].ID) != 32 {
					t.Errorf("id %q", events[0].ID)
				}
				events[0].ID = ""
			}
			if got := string(event.AppendJSON(nil, &events[0])); got != c.want {
				t.Errorf(" got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestMalformedLinesAreReportedAndPassed(t *testing.T) {
	const head, good = `10.0.0.1 - - [17/May/2015:10:05:03 +0000] `, `"GET / HTTP/1.1" 200 1`
	lines := []struct{ line, want string }{
		{head + good, ""},
		{"", ""},
		{"nonsense", errClient.Error()},
		{"10.0.0.1 -", errClient.Error()},
		{"10.0.0.1 - - " + good, errTime.Error()},
		{`10.0.0.1 - - [31/Feb/2015:10:05:03 +0000] ` + good, errTime.Error()},
		{head, errRequest.Error()},
		{head + `"GET / HTTP/1.1 200 1`, errRequest.Error()},
		{head + `"GET / HTTP/1.1"200 1`, errRequest.Error()},
		{head + `"-" 408 -`, errRequest.Error()},
		{head + `"\x16\x03\x01 /" 400 -`, errRequest.Error()},
		{head + `"GET /"`, errStatus.Error()},
		{head + `"GET /" 20 1`, errStatus.Error()},
		{head + `"GET /" 200 many`, errBytes.Error()},
		{head + good + ` "referer" "cut o`, errFields.Error()},
		{head + good + ` extra`, errFields.Error()},
		{`{"api":""}`, "no-api: at byte 0: there is no api: name the action, such as order.create"},
		{head + strings.Repeat("x", MaxLine), errTooLong.Error()},
		{head + good, ""},
	}
	var input strings.Builder
	var want []string
	for i, l := range lines {
		input.WriteString(l.line + "\r\n")
		if l.want != "" {
			want = append(want, (&LineError{i + 1, errors.New(l.want)}).Error())
		}
	}
	events, errs := readAll(t, Auto, input.String())
	if g, w := strings.Join(errs, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf(" got\n%s\nwant\n%s", g, w)
	}
	if len(events) != 2 || events[0].ID == events[1].ID {
		t.Errorf("%d events: want the first and the last line, each with an id of its own", len(events))
	}
}

func TestFormatsThatAreNamedAreStrict(t *testing.T) {
	const common = `10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1`
	const combined = common + ` "-" "agent"`
	const ndjson = `{"api":"a"}`
	for _, c := range []struct {
		format Format
		line   string
		good   bool
	}{
		{Common, common, true}, {Common, combined, false}, {Common, ndjson, false},
		{Combined, common, false}, {Combined, combined, true}, {Combined, ndjson, false},
		{NDJSON, common, false}, {NDJSON, combined, false}, {NDJSON, ndjson, true}, {NDJSON, `[]`, false},
		{Auto, common, true}, {Auto, combined, true}, {Auto, ndjson, true},
	} {
		if events, errs := readAll(t, c.format, c.line); (len(events) == 1) != c.good || len(events)+len(errs) != 1 {
			t.Errorf("%q reads %s: %d events, %v", c.format, c.line, len(events), errs)
		}
	}
	for _, f := range []Format{Auto, Combined, Common, NDJSON} {
		if got, err := ParseFormat(string(f)); got != f || err != nil {
			t.Errorf("ParseFormat(%q) = %q, %v", f, got, err)
		}
	}
	if _, err := ParseFormat("w3c"); err == nil {
		t.Error("ParseFormat took w3c")
	}
}

// The sample log that everybody knows has 10,000 lines, one of them cut off.
func TestRealLog(t *testing.T) {
	first, second := realIDs(t), realIDs(t)
	distinct := map[string]bool{}
	for i, id := range first {
		distinct[id] = true
		if second[i] != id {
			t.Fatalf("read again, event %d has id %s instead of %s", i, second[i], id)
		}
	}
	if len(first) != 9_999 || len(distinct) != len(first) {
		t.Errorf("%d events with %d different ids, want 9999 each", len(first), len(distinct))
	}
}

func realIDs(t *testing.T) (ids []string) {
	f, err := os.Open("../../../testdata/apache_logs.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	r := NewReader(z, Auto)
	for {
		e, line, err := r.Next()
		if errors.Is(err, io.EOF) {
			return ids
		}
		if wrong := (*LineError)(nil); errors.As(err, &wrong) {
			if line != 8899 || !errors.Is(err, errFields) {
				t.Error(err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Validate(); err != nil || !e.IP.IsValid() || e.UID != e.IP.String() {
			t.Errorf("line %d: %v: %+v", line, err, e)
		}
		ids = append(ids, e.ID)
	}
}

// Equal lines are told apart by how many came before, as long as they stand less than a generation
// apart.
func TestRepeats(t *testing.T) {
	const generation = 100
	r, again := newRepeats(generation), newRepeats(generation)
	a, b := r.id([]byte("line")), r.id([]byte("line"))
	if a == b || a != again.id([]byte("line")) || b != again.id([]byte("line")) {
		t.Errorf("the ids of two equal lines are %s and %s", a, b)
	}
	for i := range uint64(generation + 10) {
		r.before(i)
	}
	if c := r.id([]byte("line")); c == a || c == b {
		t.Errorf("the third equal line has the id of an earlier one")
	}
	for i := range uint64(3 * generation) {
		r.before(1<<40 + i)
	}
	if n := len(r.newer) + len(r.older); n > 2*generation {
		t.Errorf("%d lines are remembered", n)
	}
}

func TestErrorsOfTheInputEnd(t *testing.T) {
	broken := errors.New("broken")
	in := io.MultiReader(strings.NewReader("{\"api\":\"a\"}\n{\"ap"), iotestErr{broken})
	r := NewReader(in, NDJSON)
	if _, line, err := r.Next(); line != 1 || err != nil {
		t.Fatalf("line %d: %v", line, err)
	}
	if _, _, err := r.Next(); !errors.Is(err, broken) {
		t.Fatalf("err = %v, want the input's", err)
	}
}

type iotestErr struct{ err error }

func (e iotestErr) Read([]byte) (int, error) { return 0, e.err }

// An event of a line is valid, and has an address.
func FuzzLine(f *testing.F) {
	f.Add(`shop.example:443 203.0.113.9, 192.0.2.1:80 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1`)
	f.Add(`83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /Images/ks-logo.gif?x=1 HTTP/1.1" 200 203023 "http://e.com/" "Mozilla/5.0 (X11)"`)
	f.Add(`::1 - a b [c] [17/May/2015:10:05:03 +2359] "GET /\x" 404 - "\\\"" "\xc3\x28"`)
	f.Add(`h - - [17/May/2015:10:05:03 +0000] "M-SEARCH * HTTP/1.1" 100 0 "" "é" x`)
	var p parser
	f.Fuzz(func(t *testing.T, line string) {
		e, err := p.parse([]byte(line), Auto)
		if err != nil {
			return
		}
		if err := e.Validate(); err != nil {
			t.Fatalf("%q is no event: %v", line, err)
		}
		if !e.IP.IsValid() {
			t.Fatalf("%q has no address", line)
		}
		if strings.Trim(e.API, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" {
			t.Fatalf("%q has api %q", line, e.API)
		}
	})
}

func BenchmarkReader(b *testing.B) {
	line := `83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /presentations/logstash-monitorama-2013/images/kibana-search.png HTTP/1.1" 200 203023 "http://semicomplete.com/presentations/" "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1)"` + "\n"
	r := NewReader(endless(line), Combined)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := r.Next(); err != nil {
			b.Fatal(err)
		}
	}
}

type endless string

func (e endless) Read(p []byte) (int, error) { return copy(p, e), nil }

// A line has the outcome that a middleware gives to the same status.
func TestOutcomesOfStatuses(t *testing.T) {
	text, err := os.ReadFile("../../../testdata/outcomes.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		HTTP map[string]string `json:"http"`
	}
	if err := json.Unmarshal(text, &table); err != nil || len(table.HTTP) == 0 {
		t.Fatalf("%d statuses, %v", len(table.HTTP), err)
	}
	for status, want := range table.HTTP {
		line := `10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" ` + status + " 0\n"
		if e, _, err := NewReader(strings.NewReader(line), Common).Next(); err != nil || e.Outcome != want {
			t.Errorf("%s is %q, %v, want %q", status, e.Outcome, err, want)
		}
	}
}

// Whoever stops in the middle of a line goes on at its start: what was read of it was not sent.
func TestOffsetStaysInFrontOfALineThatWasReadInPart(t *testing.T) {
	first, stopped := `{"api":"a","uid":"1"}`+"\n", errors.New("stopped")
	for _, part := range []string{"", `{"api":"b`, strings.Repeat("x", 2*MaxLine), strings.Repeat("x", MaxLine/2)} {
		r := NewReader(io.MultiReader(strings.NewReader(first+part), iotest.ErrReader(stopped)), Auto)
		if e, line, err := r.Next(); e.API != "a" || line != 1 || err != nil {
			t.Fatal(e, line, err)
		}
		if e, _, err := r.Next(); !errors.Is(err, stopped) || r.Offset() != int64(len(first)) || r.Skipped() != 0 {
			t.Errorf("%d bytes of a line: %v, %v, at %d, want %d", len(part), e, err, r.Offset(), len(first))
		}
	}
}
