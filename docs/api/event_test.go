package apidocs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/apitest"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// compiled is a schema as people read it.
func compiled(t testing.TB, name string) *apitest.Schema {
	t.Helper()
	s, err := apitest.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// beyond are the exceptions that the schema's description names: words of it, an event, and whether
// they explain why the decoder and the schema do not agree about one. accepted is by the decoder.
var beyond = []struct {
	words    string
	such     string
	explains func(e map[string]any, accepted bool) bool
}{
	{"api has at most 128 bytes", `{"api":"` + strings.Repeat("é", 65) + `"}`, func(e map[string]any, accepted bool) bool {
		api, _ := e["api"].(string)
		return !accepted && len(api) > event.MaxAPI && len([]rune(api)) <= event.MaxAPI
	}},
	{"the event's JSON at most 64 KiB", `{"api":"a","x":"` + strings.Repeat("x", event.MaxBytes) + `"}`, func(e map[string]any, accepted bool) bool {
		text, err := json.Marshal(e)
		return !accepted && err == nil && len(text) > event.MaxBytes-1024 // as it came, with its spaces
	}},
	{"at most 6 fraction digits", `{"api":"a","cost":1.0000001}`, func(e map[string]any, accepted bool) bool {
		cost, ok := e["cost"].(json.Number)
		if !ok || accepted {
			return false
		}
		_, err := event.ParseDecimal(cost.String())
		return errors.Is(err, event.ErrDecimal)
	}},
	{"no fraction and no exponent", `{"api":"a","uid":42.0}`, func(e map[string]any, accepted bool) bool {
		for _, name := range []string{"uid", "id", "refunds"} {
			if n, ok := e[name].(json.Number); ok && strings.ContainsAny(n.String(), ".eE") {
				return !accepted
			}
		}
		return false
	}},
	{"a date that exists", `{"api":"a","time":"2026-02-30T00:00:00Z"}`, func(e map[string]any, accepted bool) bool {
		bad := noDate(e["time"]) || noDate(e["broker_time"]) || noDate(e["permit_at"])
		keys, _ := e["permit_at"].(map[string]any)
		for _, v := range keys {
			bad = bad || noDate(v)
		}
		return !accepted && bad
	}},
	{"an ip that is no string is dropped", `{"api":"a","ip":7}`, func(e map[string]any, accepted bool) bool {
		_, text := e["ip"].(string)
		return accepted && !text && e["ip"] != nil
	}},
	{"attributes that are null or empty do not count", `{"api":"a","attrs":{"x":null,` + manyOf(event.MaxAttrs, "1") + `}}`, func(e map[string]any, accepted bool) bool {
		attrs, _ := e["attrs"].(map[string]any)
		n := 0
		for _, v := range attrs {
			if v != nil && v != "" {
				n++
			}
		}
		return accepted && len(attrs) > event.MaxAttrs && n <= event.MaxAttrs
	}},
	{"only 16 keys are read", `{"api":"a","permit":"p","permit_at":{` + manyOf(event.MaxPermitKeys, "1") + `,"x":true}}`, func(e map[string]any, accepted bool) bool {
		keys, _ := e["permit_at"].(map[string]any)
		return accepted && (len(keys) > event.MaxPermitKeys || keys[""] != nil)
	}},
}

// manyOf are so many fields.
func manyOf(n int, value string) string {
	fields := make([]string, n)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"n%d":%s`, i, value)
	}
	return strings.Join(fields, ",")
}

// noDate reports whether a text has the form of a time, and is none.
func noDate(v any) bool {
	text, _ := v.(string)
	_, err := event.ParseMicros(text)
	return formOfTime.MatchString(text) && err != nil
}

var formOfTime = regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d`)

// The decoder accepts what the schema does, and nothing else, but for what the description names.
func TestDecoderAndSchemaAcceptTheSameEvents(t *testing.T) {
	schema := compiled(t, apidocs.Event)
	doc, err := apitest.Load(apidocs.Event)
	if err != nil {
		t.Fatal(err)
	}
	about := doc.(map[string]any)["description"].(string)
	for _, b := range beyond {
		if !strings.Contains(about, b.words) {
			t.Errorf("the schema's description does not say %q", b.words)
		}
		if _, why := agree(t, schema, b.such); why != b.words {
			t.Errorf("%.100s is to show that %q is an exception: it shows %q", b.such, b.words, why)
		}
	}
	random := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	good, bad, used := 0, 0, map[string]int{}
	for range 1500 {
		accepted, why := agree(t, schema, randomEvent(random))
		switch {
		case why != "":
			used[why]++
		case accepted:
			good++
		default:
			bad++
		}
	}
	t.Logf("%d are events, %d are not; beyond the schema: %v", good, bad, used)
	if good < 150 || bad < 150 {
		t.Errorf("%d are events and %d are not: too few to say anything", good, bad)
	}
}

// agree returns whether the decoder accepts an event, and, if the schema disagrees, by which
// exception.
func agree(t *testing.T, schema *apitest.Schema, text string) (accepted bool, why string) {
	t.Helper()
	_, wrong := event.NewDecoder().Decode([]byte(text), nil, nil, nil)
	invalid := schema.Validate([]byte(text))
	if accepted = wrong == nil; accepted == (invalid == nil) {
		return accepted, ""
	}
	var e map[string]any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&e); err != nil {
		t.Fatal(err)
	}
	for _, b := range beyond {
		if b.explains(e, accepted) {
			return accepted, b.words
		}
	}
	t.Fatalf("%.2000s\nthe decoder: %v\nthe schema: %v", text, wrong, invalid)
	return accepted, ""
}

func decodes(text string) bool {
	_, err := event.NewDecoder().Decode([]byte(text), nil, nil, nil)
	return err == nil
}

// The records of emitters, and of the tables that other languages test against, are as described.
func TestEventsOnTheWireAreAsDescribed(t *testing.T) {
	schema := compiled(t, apidocs.Event)
	text, err := os.ReadFile("../../testdata/vectors/events.json")
	if err != nil {
		t.Fatal(err)
	}
	var table []struct{ Value json.RawMessage }
	if err := json.Unmarshal(text, &table); err != nil || len(table) < 5 {
		t.Fatal(len(table), err)
	}
	for _, row := range table {
		if err := schema.Validate(row.Value); err != nil {
			t.Errorf("%s: %v", row.Value, err)
		}
	}
	for _, good := range []string{`{"api":"a","uid":7,"id":7}`, `{"api":"a","cost":-1,"refunds":7}`} { // ids of databases are numbers
		if err := schema.Validate([]byte(good)); err != nil || !decodes(good) {
			t.Errorf("%s is no event: %v", good, err)
		}
	}
	for _, bad := range []string{
		`{}`, `[]`, `"a"`, `{"api":""}`, `{"api":"a\u0000b"}`, `{"api":null}`, `{"api":"a","cost":-1}`, `{"api":"a","cost":-1,"refunds":""}`, `{"api":"a","cost":"1"}`,
		`{"api":"a","attrs":{"x":{}}}`, `{"api":"a","attrs":[]}`, `{"api":"a","time":"yesterday"}`, `{"api":"a","time":true}`, `{"api":"a","uid":1.5}`, `{"api":"a","permit":7}`,
	} {
		if schema.Validate([]byte(bad)) == nil || decodes(bad) && bad != `[]` {
			t.Errorf("%s is an event", bad)
		}
	}
}

// randomEvent is an object that may be an event: most of its fields are.
func randomEvent(r *rand.Rand) string {
	var fields []string
	add := func(chance float64, name string, value func() string) {
		if r.Float64() < chance {
			fields = append(fields, strconv.Quote(name)+":"+value())
		}
	}
	text := func() string { return randomText(r) }
	moment := func() string { return mostly(r, randomMoment) }
	add(0.97, "api", func() string {
		return mostly(r, func(r *rand.Rand) string {
			return pick(r, `"a"`, `"order.create"`, `"order.create"`, `"é"`, `""`, `"a\u0001"`, `"\u007f"`, `"`+strings.Repeat("a", 127+r.IntN(3))+`"`, `"`+strings.Repeat("é", 63+r.IntN(3))+`"`)
		})
	})
	add(0.6, "uid", func() string {
		return mostly(r, func(r *rand.Rand) string {
			return pick(r, `"42"`, `42`, `-0`, `4.5`, `42.0`, `1e3`, `""`, `"`+strings.Repeat("u", 300)+`"`, strings.Repeat("7", 300))
		})
	})
	add(0.4, "id", func() string { return mostly(r, randomText) })
	add(0.4, "time", moment)
	add(0.1, "broker_time", moment)
	add(0.3, "outcome", func() string { return mostly(r, randomText) })
	add(0.4, "cost", func() string { return mostly(r, randomNumber) })
	add(0.4, "refunds", func() string { return mostly(r, randomText) })
	add(0.3, "ip", func() string {
		return mostly(r, func(r *rand.Rand) string {
			return pick(r, `"203.0.113.9"`, `"::ffff:1.2.3.4"`, `"fe80::1%eth0"`, `"unknown"`, `""`)
		})
	})
	add(0.4, "attrs", func() string {
		return mostly(r, func(r *rand.Rand) string {
			return randomObject(r, pick(r, 3, 3, 3, 34), func() string {
				return mostly(r, func(r *rand.Rand) string { return pick(r, text(), text(), randomNumber(r), "true", "null", `""`) })
			})
		})
	})
	add(0.3, "permit", func() string { return mostly(r, randomText) })
	add(0.2, "permit_at", func() string {
		return mostly(r, func(r *rand.Rand) string {
			return pick(r, randomMoment(r), randomObject(r, pick(r, 3, 3, 20), func() string {
				return mostly(r, func(r *rand.Rand) string { return pick(r, randomMoment(r), `"2026-11-21T10:00:00Z"`) })
			}))
		})
	})
	add(0.2, "user", text)
	if r.IntN(200) == 0 {
		fields = append(fields, `"big":"`+strings.Repeat("x", event.MaxBytes)+`"`)
	}
	r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	return "{" + strings.Join(fields, ", ") + "}"
}

// mostly is what value makes, and sometimes a value of any type.
func mostly(r *rand.Rand, value func(*rand.Rand) string) string {
	if r.Float64() < 0.95 {
		return value(r)
	}
	return pick(r, "null", "null", "true", "7", `"x"`, "[]", "{}", `["a"]`, `{"a":1}`, `{"a":{}}`, "1.5", "-1")
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func randomText(r *rand.Rand) string {
	return pick(r, `"a"`, `"a"`, `"e1"`, `"héllo"`, `"\ud800"`, `"\u0000"`, `"`+strings.Repeat("x", 2000)+`"`, `""`)
}

func randomNumber(r *rand.Rand) string {
	return pick(r, "1", "0", "-1", "2.5", "0.30000000000000004", "1.0000001", "1e3", "1E-6", "1e-7", "-0", "9223372036854.775807", "9223372036854.775808", "-9223372036854.775807",
		"-9223372036854.775808", "1e30", "-2.5", strconv.Itoa(r.IntN(1000)), fmt.Sprintf("%g", r.NormFloat64()*1e6), "1.50000000000000000000000000000000000000000000")
}

func randomMoment(r *rand.Rand) string {
	at := time.UnixMilli(r.Int64N(4e12)).UTC()
	return pick(r, strconv.Quote(at.Format(time.RFC3339Nano)), strconv.Quote(at.Format("2006-01-02t15:04:05z")), strconv.Quote(at.Format("2006-01-02T15:04:05.000000000+08:00")),
		strconv.Quote(fmt.Sprintf("%04d-%02d-%02dT%02d:%02d:%02dZ", r.IntN(10000), 1+r.IntN(12), 1+r.IntN(31), r.IntN(24), r.IntN(60), r.IntN(60))),
		strconv.Quote(fmt.Sprintf("2026-%02d-%02dT%02d:%02d:%02d%s", r.IntN(14), r.IntN(33), r.IntN(26), r.IntN(62), r.IntN(62), pick(r, "Z", "", "+24:00", "-00:30"))),
		`"2026-02-30T00:00:00Z"`, `"2016-12-31T23:59:60Z"`, `"2016-12-31T22:59:60Z"`, `"0000-01-01T00:00:00+01:00"`, `"9999-12-31T23:59:59.9999999Z"`, `"9999-12-31T23:59:59-01:00"`,
		`"2026-11-21"`, `"2026-11-21 10:00:00Z"`, `""`, strconv.FormatInt(at.UnixMilli(), 10), fmt.Sprintf("%d.25", at.UnixMilli()),
		"-62167219200000", "-62167219200000.001", "253402300799999.9999", "253402300800000", "-1.5", "1e13", "1e14", "1e15")
}

func randomObject(r *rand.Rand, most int, value func() string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range r.IntN(most + 1) {
		if i > 0 {
			b.WriteByte(',')
		}
		name := fmt.Sprintf("n%d", i)
		if r.IntN(60) == 0 {
			name = ""
		}
		fmt.Fprintf(&b, "%q:%s", name, value())
	}
	return b.String() + "}"
}
