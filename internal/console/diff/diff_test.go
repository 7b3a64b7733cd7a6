package diff

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/api"
)

func text(lines []Line) (out []string) {
	for _, l := range lines {
		out = append(out, fmt.Sprintf("%s %d %d %s", l.Kind, l.Old, l.New, l.Text))
	}
	return out
}

func TestUnified(t *testing.T) {
	old := "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	for name, c := range map[string]struct {
		old, now string
		want     []string
	}{
		"the same":     {old, old, nil},
		"end of line":  {"a", "a\n", nil},
		"from nothing": {"", "a\nb", []string{"added 0 1 a", "added 0 2 b"}},
		"to nothing":   {"a\n", "", []string{"removed 1 0 a"}},
		"in the middle": {old, strings.Replace(old, "8\n", "acht\n", 1), []string{
			"left-out 0 0 ", "same 5 5 5", "same 6 6 6", "same 7 7 7", "removed 8 0 8", "added 0 8 acht", "same 9 9 9"}},
		"lines like a head": {"-- a\n", "++ b\n@@ c\n", []string{"removed 1 0 -- a", "added 0 1 ++ b", "added 0 2 @@ c"}},
	} {
		if d := cmp.Diff(c.want, text(Unified(c.old, c.now))); d != "" {
			t.Errorf("%s (- want)\n%s", name, d)
		}
	}
	if added, removed := Count(Unified(old, "1\nx\ny\n")); added != 2 || removed != 8 {
		t.Errorf("%d added, %d removed", added, removed)
	}
}

func TestSideBySide(t *testing.T) {
	var got []string
	for _, p := range SideBySide(Unified("a\nb\nc\nz\n", "a\nB\nz\ny\n")) {
		got = append(got, fmt.Sprintf("%d %s | %d %s", p.Old.Old, p.Old.Text, p.New.New, p.New.Text))
	}
	want := []string{"1 a | 1 a", "2 b | 2 B", "3 c | 0 ", "4 z | 3 z", "0  | 4 y"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(- want)\n%s", d)
	}
}

const shop = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - name: searches
      match: {api: [search, suggest]}
      limit: 100
      per: 1m
      then: {block: 5m}
    - name: writes
      match: {api: {order.create: 5, order.update: 1}}
      limits:
        - {name: burst, limit: 20, per: 1s, window: tumbling}
        - {name: hourly, limit: 1k, per: 1h}
      then: {block: until-reset}
    - name: exports
      match: {api: export}
      limit: 2
      window: in-flight
      strict: {hold: 1m}
`

// What a roll back or a new file does to the counters is known before.
func TestMeaning(t *testing.T) {
	for name, c := range map[string]struct {
		replace []string
		want    Meaning
	}{
		"nothing":           {nil, Meaning{}},
		"a comment":         {[]string{"limit: 100", "limit: 100 # a minute"}, Meaning{}},
		"a number":          {[]string{"limit: 100", "limit: 80"}, Meaning{Changed: []string{"searches"}, Judged: []string{"searches"}}},
		"a window's length": {[]string{"per: 1h", "per: 2h"}, Meaning{Changed: []string{"writes"}, Empty: []string{"writes/hourly"}}},
		"what is counted":   {[]string{"limit: 100", "count: {sum: attrs.bytes}\n      limit: 100"}, Meaning{Changed: []string{"searches"}, Empty: []string{"searches"}}},
		"an API":            {[]string{"[search, suggest]", "[search]"}, Meaning{Changed: []string{"searches"}}},
		"another name":      {[]string{"name: searches", "name: finds"}, Meaning{New: []string{"finds"}, Gone: []string{"searches"}}},
		"under way":         {[]string{"match: {api: export}", "key: ip\n      match: {api: export}"}, Meaning{Changed: []string{"exports"}, Empty: []string{"exports"}}},
		"settings":          {[]string{"  rules:", "  max_lateness: 2h\n  rules:"}, Meaning{Settings: true}},
	} {
		now := strings.NewReplacer(append(c.replace, "\x00", "")...).Replace(shop)
		got := Compare(version(1, shop), version(2, now))
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (- want)\n%s", name, d)
		}
		if got.Nothing() != (name == "nothing" || name == "a comment") {
			t.Errorf("%s: nothing is %t", name, got.Nothing())
		}
	}
	if got := Compare(version(1, "x"), version(2, shop)); !strings.Contains(got.Unknown, "version 1") {
		t.Errorf("%+v", got)
	}
}

func version(number int64, source string) *api.Rules {
	return &api.Rules{Version: number, RuleRecord: api.RuleRecord{Source: source}}
}
