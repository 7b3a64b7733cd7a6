package enforce

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/verdict"
)

// A page of one of 300,000 verdicts took 127 MB.
func TestAPageTakesItsOwnMemoryOnly(t *testing.T) {
	table, err := NewTable(Config{Causes: true})
	if err != nil {
		t.Fatal(err)
	}
	all := make([]verdict.Verdict, 100_000)
	for i := range all {
		all[i] = block("r", fmt.Sprintf("uid=%d", i), func(v *verdict.Verdict) {
			v.Since, v.Cause = now()-second, verdict.Cause{ID: fmt.Sprint("event-", i)}
		})
	}
	table.Replace(0, all)
	for _, limit := range []int{1, 100} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		page, next := table.List("", "", limit)
		runtime.ReadMemStats(&after)
		// A page is met in the table's order: each verdict that belongs before those so far is made, and dropped again.
		if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 1<<20 || len(page) != limit || next == "" {
			t.Errorf("limit %d: %d bytes for %d verdicts, next %q", limit, bytes, len(page), next)
		}
	}
}

// Pages of any size show what one page of all shows.
func TestPagesAreTheWholeList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, err := NewTable(Config{})
		if err != nil {
			t.Fatal(err)
		}
		past := now() - second
		want := map[string]bool{}
		prefix := rapid.SampledFrom([]string{"", "uid=", "uid=1", "z"}).Draw(t, "prefix")
		for range rapid.IntRange(0, 40).Draw(t, "verdicts") {
			v := block(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "rule"), fmt.Sprintf("%s=%d", rapid.SampledFrom([]string{"uid", "attrs.x"}).Draw(t, "name"),
				rapid.IntRange(0, 20).Draw(t, "n")), func(v *verdict.Verdict) { v.Since = past })
			if rapid.IntRange(0, 9).Draw(t, "later") == 0 {
				v.Since = v.Until - 1
			}
			table.Apply(0, []verdict.Verdict{v})
			if want[nameOf(v)] = v.Since == past; !strings.HasPrefix(nameOf(v), prefix) {
				delete(want, nameOf(v))
			}
		}
		var names []string
		for name, is := range want {
			if is {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		limit, cursor := rapid.IntRange(1, 10).Draw(t, "limit"), ""
		var got []string
		for {
			page, next := table.List(prefix, cursor, limit)
			for _, v := range page {
				got = append(got, nameOf(*v))
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		if !slices.Equal(got, names) {
			t.Fatalf("pages %q, want %q", got, names)
		}
		if whole, next := table.List(prefix, "", -1); len(whole) != len(names) || next != "" {
			t.Fatalf("%d of %d without a limit, next %q", len(whole), len(names), next)
		}
	})
}

func nameOf(v verdict.Verdict) string { return string(verdict.AppendRecordKey(nil, &v)) }
