package apidocs_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/apitest"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

// closed is a schema of what programs write: fields that it does not name are mistakes.
func closed(t testing.TB, name string) *apitest.Schema {
	t.Helper()
	s, err := apitest.CompileClosed(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func randomVerdict(r *rand.Rand) verdict.Verdict {
	at := event.Micros(r.Int64N(int64(event.MaxTime)))
	v := verdict.Verdict{
		Rule: pick(r, "search", "search/burst", "manual", "ü|\x00"), Public: pick(r, "", "searches"),
		State: verdict.State(r.IntN(4)), Mode: verdict.Mode(r.IntN(2)), Action: verdict.Action(r.IntN(4)),
		Count: event.Decimal(r.Int64() - r.Int64()), Limit: event.Decimal(r.Int64()), Per: event.Micros(pick(r, 0, 1, 60e6)),
		Since: at, Until: at + event.Micros(r.Int64N(1e9)), Seq: r.Int64(), Step: pick(r, "", "50%"),
		Cause: verdict.Cause{ID: pick(r, "", "e1"), Partition: r.Int32(), Offset: r.Int64()},
	}
	if r.IntN(2) == 0 {
		v.Trace.ID[r.IntN(16)], v.Trace.Span[r.IntN(8)] = byte(1+r.IntN(255)), byte(1+r.IntN(255))
	}
	for _, name := range []string{"attrs.campaign", "ip/64", "uid"}[r.IntN(3):] {
		v.Key = append(v.Key, event.Dim{Name: name, Value: pick(r, "42", "\x00", "日本 \"\\")})
	}
	for range r.IntN(3) {
		v.APIs = append(v.APIs, pick(r, "*", "search.query", "search.*"))
	}
	return v
}

// What is written is as described, no field more; and what is described is read.
func TestVerdictsAreAsDescribed(t *testing.T) {
	schema, read := closed(t, apidocs.Verdict), compiled(t, apidocs.Verdict)
	required := regexp.MustCompile(`"(rule|key|state|mode|action|apis|count|limit|since|until|seq|cause)":`)
	random := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	for range 500 {
		v := randomVerdict(random)
		text := string(verdict.AppendJSON(nil, &v))
		if err := schema.Validate([]byte(text)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		at := required.FindAllStringSubmatchIndex(text, -1)
		one := at[random.IntN(len(at))]
		without := text[:one[2]] + "x-" + text[one[2]:]
		if schema.Validate([]byte(without)) == nil {
			t.Fatalf("%s: a verdict without %s is as described", without, text[one[2]:one[3]])
		}
		other := strings.Replace(text, pick(random, `"rule":"`, `"state":"`, `"action":"`, `"uid":"`), pick(random, `"rule":"x`, `"state":"`, `"action":null,"x":"`, `"uid":1,"y":"`), 1)
		if _, err := verdict.Parse([]byte(other)); read.Validate([]byte(other)) == nil && err != nil {
			t.Fatalf("%s is as described, and not read: %v", other, err)
		}
	}
}

// Readers skip what is new: so do the enforcers of this version.
func TestVerdictsOfNewerProgramsAreAsDescribed(t *testing.T) {
	const newer = `{"rule":"r","key":{"uid":"42"},"state":"block","mode":"enforce","action":"block","apis":["*"],"count":1,"limit":1,
		"since":"2026-11-21T10:00:01Z","until":"2026-11-21T10:05:01Z","seq":1,"cause":{"partition":0,"offset":0,"topic":"x"},"why":"x"}`
	if err := compiled(t, apidocs.Verdict).Validate([]byte(newer)); err != nil {
		t.Error(err)
	}
	if _, err := verdict.Parse([]byte(newer)); err != nil {
		t.Error(err)
	}
}

// reference is all of its pages.
func reference(t *testing.T) (all []byte) {
	t.Helper()
	pages, err := filepath.Glob("../reference/*.md")
	if err != nil || len(pages) < 9 {
		t.Fatalf("%d pages (%v)", len(pages), err)
	}
	for _, name := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page...)
	}
	return all
}

// The reference shows what the schemas describe.
func TestTheReferenceIsAsDescribed(t *testing.T) {
	page := reference(t)
	shown := map[string]int{}
	for _, block := range regexp.MustCompile("(?ms)^```json\n(.*?)^```$").FindAllSubmatch(page, -1) {
		values := json.NewDecoder(strings.NewReader(string(block[1])))
		for values.More() {
			var raw json.RawMessage
			if err := values.Decode(&raw); err != nil {
				t.Fatalf("%v in\n%s", err, block[1])
			}
			name := ""
			switch text := string(raw); {
			case strings.Contains(text, `"verdict":{"rule":"search-combined"}`): // the page says that it is not whole
				continue
			case strings.Contains(text, `"type":`):
				name = apidocs.Audit
			case strings.Contains(text, `"state":`):
				name = apidocs.Verdict
			case strings.Contains(text, `"wait":`):
				name = apidocs.Enforcer + "#/components/schemas/Check"
			case strings.Contains(text, `"api":`):
				name = apidocs.Event
			default:
				t.Errorf("what is this? %s", text)
				continue
			}
			shown[name]++
			if err := closed(t, name).Validate(raw); err != nil {
				t.Errorf("%s: %v", raw, err)
			}
		}
	}
	if shown[apidocs.Audit] < 4 || shown[apidocs.Verdict] == 0 || shown[apidocs.Event] == 0 {
		t.Errorf("the page shows %v", shown)
	}
}
