package vocabulary

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/rules"
)

func run(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = Command(testrun.Context(t), args, strings.NewReader(""), &out, &errs, testrun.NoEnv)
	return status, out.String(), errs.String()
}

func write(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const head, rule = "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: shop}\n", "  rules: [{name: a, match: {api: \"*\"}, limit: 1, per: 1h, then: {block: 1h}}]\n"

// Whatever events say: what is written of them is a vocabulary that they do not contradict.
func TestEventsFitWhatIsWrittenOfThem(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 1))
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	for range 40 {
		var lines []byte
		spread := 1 + rng.IntN(60)
		for range 1 + rng.IntN(400) {
			e := event.Event{UID: fmt.Sprint("u", rng.IntN(5)), Cost: event.One, Time: event.NoTime, BrokerTime: event.NoTime}
			for range 1 + rng.IntN(4) {
				e.API += pick("order", "login", "y", "null", "get", "Ä", "-", fmt.Sprint("n", rng.IntN(spread)), fmt.Sprint(rng.IntN(spread))) + "."
			}
			if e.API = strings.TrimSuffix(e.API, "."); rng.IntN(5) == 0 {
				e.API = pick("y", "true", "1", "1.0", "007", "~", "a:b", "a#b", "'", "\"", "{a}", "-", "", "0x1f") + pick("", "x", ".a")
			}
			if e.API == "" {
				e.API = "x"
			}
			for _, name := range []string{"plan", "size", "yes", "a b", "1", "x: {}", "ü"} {
				switch rng.IntN(5) {
				case 0:
					e.Attrs = append(e.Attrs, event.Attr{Name: name, Value: event.StringValue(pick("free", "pro", "true", "no", "7", "a, b", "[x]", "# y", "\t\n", "é", e.UID+"x"))})
				case 1:
					if len(name) > 3 {
						e.Attrs = append(e.Attrs, event.Attr{Name: name, Value: event.NumberValue(event.Decimal(rng.Int64N(1e9)))})
					}
				case 2:
					if name == "yes" {
						e.Attrs = append(e.Attrs, event.Attr{Name: name, Value: event.BoolValue(true)})
					}
				}
			}
			lines = append(event.AppendJSON(lines, &e), '\n')
		}
		path := write(t, "events.ndjson", string(lines))
		status, learned, errs := run(t, path)
		if status != 0 {
			t.Fatalf("status %d: %s", status, errs)
		}
		file := write(t, "rules.yaml", head+learned+rule)
		if _, err := rules.Compile("rules.yaml", []byte(head+learned+rule)); err != nil {
			t.Fatalf("%s\n%v", learned, err)
		}
		status, said, errs := run(t, "--rules", file, path)
		unnamed := strings.Contains(learned, "Left out")
		if status != 0 && !unnamed || unnamed && strings.Contains(said, "attrs.") {
			t.Fatalf("status %d, %s%s\n%s", status, said, errs, learned)
		}
	}
}

// Names that differ by somebody's number are a pattern; few names stay names.
func TestManyNamesAreOnePattern(t *testing.T) {
	for what, tt := range map[string]struct {
		names []string
		want  string
	}{
		"twenty names":               {numbered("order.%d", 20), strings.Join(sorted(numbered("order.%d", 20)), " ")},
		"one more":                   {numbered("order.%d", 21), "order.*"},
		"more behind the number":     {numbered("user.%d.get", 21), "user.*.get"},
		"two of them":                {append(numbered("user.%d.get", 21), numbered("user.%d.put", 30)...), "user.*.get user.*.put"},
		"a name and more behind it":  {append(numbered("user.%d", 21), numbered("user.%d.get", 3)...), "user.*"},
		"numbers in numbers":         {append(numbered("a.%d.b.1", 21), numbered("a.1.b.%d", 30)...), "a.*.b.*"},
		"what APIs begin with":       {numbered("service%d.get", 40), strings.Join(sorted(numbered("service%d.get", 40)), " ")},
		"numbers at their beginning": {numbered("%d", 1001), "*"},
	} {
		var root apiNode
		for _, name := range tt.names {
			root.add(name, 2)
		}
		got, sum := "", uint64(0)
		for _, a := range root.list(nil, false) {
			got += " " + a.API
			sum += a.Events
		}
		if got = strings.TrimSpace(got); got != tt.want || sum != 2*uint64(len(tt.names)) {
			t.Errorf("%s: %s with %d events, want %s", what, got, sum, tt.want)
		}
	}
}

func numbered(format string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf(format, i+1))
	}
	return out
}

// Values are told only of attributes that have few, each of them several times; a uid is no such value, and
// no long text.
func TestValuesThatMayNameSomebodyAreNotTold(t *testing.T) {
	var lines strings.Builder
	for i := range 60 {
		fmt.Fprintf(&lines, `{"uid":"user-%d","api":"x","attrs":{"plan":"p%d","twelve":"t%d","thirteen":"f%d","me":"user-%d","long":"%s","card":"c%d"}}`+"\n",
			i%3, i%2, i%12, i%13, i%3, strings.Repeat("long", 17), i)
	}
	lines.WriteString(`{"uid":"u","api":"x","attrs":{"plan":"seldom-one"}}` + "\n")
	path := write(t, "events.ndjson", lines.String())
	status, out, _ := run(t, "--json", path)
	var got object
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != 0 {
		t.Fatalf("%d %v: %s", status, err, out)
	}
	types := map[string]string{}
	for _, a := range got.Attrs {
		types[a.Name] = fmt.Sprint(a.Type, len(a.Values))
	}
	if want := map[string]string{"plan": "text0", "twelve": "values12", "thirteen": "text0", "me": "text0", "long": "text0", "card": "text0"}; fmt.Sprint(types) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", types, want)
	}
	file := write(t, "rules.yaml", head+"spec:\n  attrs: {plan: [p0], me: number, card: boolean}\n"+rule)
	status, compared, _ := run(t, "--rules", file, path)
	if status != 1 || !strings.Contains(compared, "attrs.plan is \"p0\", and here it is another") || !strings.Contains(compared, "attrs.me is a number, and here it is text") {
		t.Errorf("status %d\n%s", status, compared)
	}
	for _, text := range []string{out, compared} {
		for _, secret := range []string{"user-", "seldom-one", "longlong", "c17", "f3", "p1"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s is told:\n%s", secret, text)
			}
		}
	}
}

// Names are bounded, however many events make up.
func TestContradictionsAreFew(t *testing.T) {
	var lines strings.Builder
	for i := range 300 {
		fmt.Fprintf(&lines, `{"api":"x%d","attrs":{"%s%d":1}}`+"\n", i, strings.Repeat("n", 100), i)
	}
	file := write(t, "rules.yaml", head+"spec:\n  apis: y\n  attrs: {a: text}\n"+rule)
	path := write(t, "events.ndjson", lines.String())
	_, out, _ := run(t, "--rules", file, path)
	if n := strings.Count(out, "\n"); n != 3+2*101 || strings.Contains(out, strings.Repeat("n", 70)) {
		t.Errorf("%d lines", n)
	}
	_, out, _ = run(t, "--rules", file, "--json", path)
	if n := strings.Count(out, `"name":"(other)","events":200,`); n != 2 {
		t.Errorf("%d sums of what is not listed", n)
	}
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
