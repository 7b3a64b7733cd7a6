package enforce

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/rig"
	"github.com/tallygate/tallygate/verdict"
)

// leaves is a key's remainder from now on for a minute.
func leaves(rule, key string, count, limit event.Decimal, change func(*verdict.Verdict)) verdict.Verdict {
	at := event.FromTime(time.Now())
	return rig.Block(rule, key, at, at+event.Minute, func(v *verdict.Verdict) {
		v.State, v.Public, v.Count, v.Limit = verdict.Left, strings.Split(rule, "/")[0], count*event.One, limit*event.One
		if change != nil {
			change(v)
		}
	})
}

func uid(id string) []event.Dim { return []event.Dim{{Name: "uid", Value: id}} }

// told writes what a table says is left.
func told(t *Table, api string, dims []event.Dim) (all []string) {
	for _, l := range t.Left(api, dims) {
		all = append(all, fmt.Sprintf("%s %v of %v", l.Rule, l.Left(), l.Limit))
	}
	return all
}

func inStep(t *Table) {
	t.Replace(0, nil)
	t.Heartbeat(0, event.FromTime(time.Now()))
}

// Of all that is known the least comes first; a block changes nothing of it, nor does it change checks.
func TestWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t)
		testrun.Start(t, table.Run)
		inStep(table)
		table.Apply(0, []verdict.Verdict{
			leaves("a", "uid=42", 63, 100, nil),
			leaves("b/fast", "uid=42", 9, 5, nil),
			leaves("c", "ip=192.0.2.1", 1, 3, func(v *verdict.Verdict) { v.APIs = []string{"order.*"} }),
			leaves("d", "uid=42", 1, 2, func(v *verdict.Verdict) { v.Mode = verdict.Shadow }),
		})
		dims := append(uid("42"), event.Dim{Name: "ip", Value: "192.0.2.1"})
		for api, want := range map[string]string{"": "[b/fast 0 of 5 c 2 of 3 a 37 of 100]", "search": "[b/fast 0 of 5 a 37 of 100]"} {
			if got := fmt.Sprint(told(table, api, dims)); got != want {
				t.Errorf("for %q %s, want %s", api, got, want)
			}
		}
		if table.Len() != 0 || !table.Check("search", "42").Allowed || !table.CheckDims("search", dims).Allowed || len(table.Verdicts("search", dims)) > 0 {
			t.Error("what is left is no verdict that denies or is listed")
		}
		if entries, bytes := table.Quotas(); entries != 4 || bytes == 0 {
			t.Errorf("%d entries in %d bytes", entries, bytes)
		}
		if !table.MayTell(dims) || table.MayTell(uid("43")) || len(table.Left("", uid("43"))) > 0 {
			t.Error("of others nothing is known")
		}
		table.Apply(0, []verdict.Verdict{leaves("a", "uid=42", 64, 100, func(v *verdict.Verdict) { v.Seq = 5 }), leaves("a", "uid=42", 1, 100, func(v *verdict.Verdict) { v.Seq = 4 })})
		if got := fmt.Sprint(told(table, "search", uid("42"))); got != "[b/fast 0 of 5 a 36 of 100]" {
			t.Errorf("the newest counts: %s", got)
		}
		table.Apply(0, []verdict.Verdict{leaves("a", "uid=42", 0, 0, func(v *verdict.Verdict) { v.Seq, v.Until = 6, v.Since })})
		table.Remove(0, []byte("uid=42|b/fast|left"))
		if got := told(table, "", uid("42")); len(got) > 0 {
			t.Errorf("after its end: %v", got)
		}
		time.Sleep(time.Minute + time.Second)
		table.Heartbeat(0, event.FromTime(time.Now()))
		if got := told(table, "", dims); len(got) > 0 {
			t.Errorf("after the window: %v", got)
		}
		time.Sleep(time.Minute)
		if entries, _ := table.Quotas(); entries != 0 {
			t.Errorf("%d entries are kept after their end", entries)
		}
	})
}

// Of a table that is stale, or switched off, nothing is told: the numbers may be old.
func TestNothingIsToldInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t)
		testrun.Start(t, table.Run)
		table.Apply(0, []verdict.Verdict{leaves("a", "uid=42", 63, 100, func(v *verdict.Verdict) { v.Until += event.Hour })})
		if got := told(table, "", uid("42")); len(got) > 0 {
			t.Errorf("before the first snapshot: %v", got)
		}
		table.Replace(0, []verdict.Verdict{leaves("a", "uid=42", 63, 100, func(v *verdict.Verdict) { v.Until += event.Hour })})
		table.Heartbeat(0, event.FromTime(time.Now()))
		if got := told(table, "", uid("42")); len(got) != 1 {
			t.Errorf("in step: %v", got)
		}
		table.SetEnabled(false)
		if got := told(table, "", uid("42")); len(got) > 0 || table.MayTell(uid("42")) {
			t.Errorf("switched off: %v", got)
		}
		table.SetEnabled(true)
		time.Sleep(2 * time.Minute)
		if got := told(table, "", uid("42")); len(got) > 0 {
			t.Errorf("stale: %v", got)
		}
		inStep(table)
		if got := told(table, "", uid("42")); len(got) > 0 {
			t.Errorf("a snapshot without it: %v", got)
		}
	})
}

func TestQuotaFields(t *testing.T) {
	at := t0.Time()
	all := []Left{
		{Rule: "burst", Public: "writes", Limit: 5 * event.One, Count: 4 * event.One, Per: time.Second, Until: at.Add(time.Second), At: at},
		{Rule: "hourly", Public: "writes", Limit: 100 * event.One, Count: 4 * event.One, Until: at.Add(time.Hour), At: at},
		{Rule: "secret", Limit: 9 * event.One, Until: at.Add(time.Hour), At: at},
		{Rule: "b", Public: "searches", Limit: 100*event.One + 1, Count: 63 * event.One, Per: time.Minute, Key: uid("42"), Until: at.Add(21*time.Second + time.Microsecond), At: at},
		{Rule: "c", Public: "c", Limit: 100 * event.One, Per: time.Second / 2, Until: at.Add(time.Second), At: at},
		{Rule: "d", Public: "d", Limit: 100 * event.One, Until: at.Add(time.Second), At: at},
		{Rule: "e", Public: "e", Limit: 100 * event.One, Until: at.Add(time.Second), At: at},
	}
	fields := func(a *Answers, h http.Header, all []Left) string {
		a.Quotas(h, all)
		return strings.Join([]string{h.Get("RateLimit"), h.Get("RateLimit-Policy"), h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining")}, " | ")
	}
	for name, c := range map[string]struct {
		answers Answers
		before  http.Header
		all     []Left
		want    string
	}{
		"nothing": {want: " |  |  | "},
		"the least of each name, at most four": {all: all,
			want: `"writes";r=1;t=1, "searches";r=37;t=22, "c";r=100;t=1, "d";r=100;t=1 | "writes";q=5;w=1, "searches";q=100;w=60, "c";q=100, "d";q=100 |  | `},
		"no public name":     {all: all[2:3], want: " |  |  | "},
		"a name of its own":  {answers: Answers{Rules: map[string]PublicRule{"secret": {Name: "s"}}}, all: all[2:3], want: `"s";r=9;t=3600 | "s";q=9 |  | `},
		"older fields":       {answers: Answers{XRateLimit: true, NoRateLimit: true}, all: all, want: " |  | 5 | 1"},
		"none wanted":        {answers: Answers{NoRateLimit: true}, all: all, want: " |  |  | "},
		"behind a permit's":  {before: http.Header{"Ratelimit": {`"writes";r=0;t=9`}, "Ratelimit-Policy": {`"writes";q=5`}}, all: all[:4], want: `"writes";r=0;t=9, "searches";r=37;t=22 | "writes";q=5, "searches";q=100;w=60 |  | `},
		"with partition key": {answers: Answers{PartitionKey: []byte("secret")}, all: all[3:4], want: `"searches";r=37;t=22;pk=:sdKGtRbfqOAt: | "searches";q=100;w=60;pk=:sdKGtRbfqOAt: |  | `},
	} {
		if c.before == nil {
			c.before = http.Header{}
		}
		if got := fields(&c.answers, c.before, c.all); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

// A lookup that finds nothing, as of rules without quota all do, allocates nothing.
func TestLookingForWhatIsLeftDoesNotAllocate(t *testing.T) {
	table := newTable(t)
	dims := uid("43")
	look := func() {
		if table.MayTell(dims) || table.Left("a", dims) != nil {
			t.Error("something is left to nobody")
		}
	}
	if n := testrun.Allocs(100, look); n > 0 {
		t.Errorf("%v allocations without quotas", n)
	}
	inStep(table)
	table.Apply(0, []verdict.Verdict{leaves("a", "uid=42", 63, 100, nil)})
	if n := testrun.Allocs(100, look); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
