package enforce

import (
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

// Who is blocked under the canonical form of a value is denied however the value is written, on every way to ask.
func TestChecksLookForTheCanonicalForm(t *testing.T) {
	long := strings.Repeat("d", 70<<10)
	for name, c := range map[string]struct{ dim, asked string }{
		"invalid UTF-8":             {"uid", "a\xffb"},
		"one byte of it":            {"uid", "\xff"},
		"behind sixteen bytes":      {"uid", "0123456789abcdefghi\xc3"},
		"half a surrogate pair":     {"uid", "user-\xed\xa0\x80"},
		"a long uid":                {"uid", long[:257]},
		"a uid that becomes long":   {"uid", strings.Repeat("\xff", 100)},
		"other letters":             {"uid", "用户漢字"},
		"a huge attribute":          {"attrs.device", long},
		"an invalid attribute":      {"attrs.device", "d\xff"},
		"an attribute of new lines": {"attrs.device", strings.Repeat("\n", 5000)},
		"an address":                {"ip", "::FFFF:192.0.2.1"},
		"a network":                 {"ip/64", "2001:DB8::7"},
	} {
		t.Run(name, func(t *testing.T) {
			table := newTable(t)
			key := []event.Dim{{Name: c.dim, Value: event.CanonicalDim(c.dim, c.asked)}}
			asked := []event.Dim{{Name: c.dim, Value: c.asked}}
			table.Replace(0, []verdict.Verdict{block("r", event.FormatKey(key), func(v *verdict.Verdict) { v.Since, v.Until = now(), now()+event.Hour })})
			decisions := map[string]Decision{"CheckDims": table.CheckDims("search", asked), "CheckDimsAt": table.CheckDimsAt(now(), "search", asked)}
			if c.dim == dimUID {
				decisions["Check"], decisions["CheckAt"] = table.Check("search", c.asked), table.CheckAt(now(), "search", c.asked)
			}
			for way, d := range decisions {
				if d.Allowed {
					t.Errorf("%s lets through", way)
				}
			}
			if len(table.Verdicts("search", asked)) != 1 {
				t.Error("Verdicts has none")
			}
			if asked[0].Value != c.asked {
				t.Error("the caller's dimensions were changed")
			}
		})
	}
}

// An aggregator of before could block an attribute that is cut now.
func TestVerdictsOnLongValuesAreHeldInTheirCanonicalForm(t *testing.T) {
	table := newTable(t)
	long := []event.Dim{{Name: "attrs.device", Value: strings.Repeat("d", 5000)}}
	v := block("r", event.FormatKey(long), func(v *verdict.Verdict) { v.Since, v.Until = now(), now()+event.Hour })
	table.Replace(0, []verdict.Verdict{v})
	if table.CheckDims("search", long).Allowed {
		t.Error("let through")
	}
	table.Remove(0, verdict.AppendRecordKey(nil, &v))
	if !table.CheckDims("search", long).Allowed {
		t.Error("denied after it was removed")
	}
}

func TestLocalLimitsOfAStaleTableCountTheCanonicalForm(t *testing.T) {
	table, err := NewTable(Config{MaxStaleness: time.Second, OnStale: Local, Rules: map[string]RuleOnStale{
		"r": {Do: Local, APIs: []string{"search"}, Limit: 1, Per: time.Hour},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if d := table.Check("search", "a\xffb"); !d.Allowed {
		t.Errorf("the first is denied by %q", d.Rule())
	}
	if d := table.Check("search", "a\xfeb"); d.Allowed { // the same user, as events have it
		t.Error("the second is let through")
	}
}

func TestChecksOfCleanValuesDontAllocate(t *testing.T) {
	table := newTable(t)
	uid := strings.Repeat("u", 36)
	dims := []event.Dim{{Name: dimUID, Value: uid}, {Name: "ip", Value: "2001:db8::1"}, {Name: "attrs.device", Value: "漢字" + uid}}
	if n := testrun.Allocs(100, func() {
		table.Check("search", uid)
		table.Check("search", "用户")
		table.CheckDims("search", dims)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
