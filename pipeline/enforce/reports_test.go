package enforce

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

// moved is a table whose clock the test moves.
func moved(t testing.TB) (table *Table, at *atomic.Int64) {
	at = &atomic.Int64{}
	at.Store(int64(t0))
	return newTableWith(t, Config{Now: func() event.Micros { return event.Micros(at.Load()) }}), at
}

func shadow(v *verdict.Verdict) { v.Mode = verdict.Shadow }

// text is a summary as tests compare it.
func text(s Summary) string {
	lines := []string{strconv.Itoa(s.Entries)}
	for _, r := range s.Rules {
		lines = append(lines, fmt.Sprintf("%s %d %d %d %v", r.Rule, r.Blocked, r.Shadow, r.WouldDeny, r.Decided))
	}
	return strings.Join(lines, "; ")
}

// Keys are counted by the rule that blocks them, while it does: not before, and not when it has ended, though
// nothing was swept, and not what is a notice.
func TestKeysByRule(t *testing.T) {
	table, at := moved(t)
	later := func(v *verdict.Verdict) { v.Since, v.Until = v.Since+event.Second, v.Until+event.Minute }
	table.Apply(0, []verdict.Verdict{
		block("a", "uid=1", nil), block("a", "uid=2", nil), block("a", "uid=3", later), block("b/fast", "ip=10.0.0.1", nil), block("b/fast", "uid=1", nil),
		block("c", "uid=1", shadow), block("c", "uid=2", shadow), block("c", "uid=3", nil), // of one rule in both modes, as while it changes
		block("d", "uid=1", func(v *verdict.Verdict) { v.State = verdict.Warn }),
	})
	for _, is := range []struct {
		at   event.Micros
		want string
	}{
		{t0 - 1, "9; a 0 0 0 map[]; b/fast 0 0 0 map[]; c 0 0 0 map[]; d 0 0 0 map[]"},
		{t0, "9; a 2 0 0 map[]; b/fast 2 0 0 map[]; c 1 2 0 map[]; d 0 0 0 map[]"},
		{t0 + event.Second, "9; a 3 0 0 map[]; b/fast 2 0 0 map[]; c 1 2 0 map[]; d 0 0 0 map[]"},
		{t0 + event.Minute - 1, "9; a 3 0 0 map[]; b/fast 2 0 0 map[]; c 1 2 0 map[]; d 0 0 0 map[]"},
		{t0 + event.Minute, "1; a 1 0 0 map[]; b/fast 0 0 0 map[]; c 0 0 0 map[]; d 0 0 0 map[]"},
		{t0 + 2*event.Minute, "0; a 0 0 0 map[]; b/fast 0 0 0 map[]; c 0 0 0 map[]; d 0 0 0 map[]"},
	} {
		if at.Store(int64(is.at)); text(table.Summary()) != is.want {
			t.Errorf("at %v there are %s, want %s", is.at-t0, text(table.Summary()), is.want)
		}
	}
	at.Store(int64(t0))
	table.Apply(0, []verdict.Verdict{block("a", "uid=1", func(v *verdict.Verdict) { v.State, v.Seq = verdict.Clear, 2 })})
	if got := text(table.Summary()); !strings.HasPrefix(got, "8; a 1 ") {
		t.Errorf("after one was cleared there are %s", got)
	}
	table.Replace(0, nil)
	if got := text(table.Summary()); !strings.HasPrefix(got, "0; a 0 ") { // a rule stays when its last verdict goes
		t.Errorf("after the last was removed there are %s", got)
	}
}

// A check counts for a rule in shadow mode if only that let it through: whatever asks, and however often the
// rule's verdicts are replaced meanwhile.
func TestWouldDeny(t *testing.T) {
	table, at := moved(t)
	orders := func(v *verdict.Verdict) { shadow(v); v.APIs = []string{"order.*"} }
	logs := func(v *verdict.Verdict) { shadow(v); v.Action = verdict.ActLog }
	all := []verdict.Verdict{
		block("a", "uid=1", orders), block("b", "uid=1", shadow), block("c", "ip=10.0.0.1", shadow), block("d", "uid=1", logs),
		block("a", "uid=2", orders), block("e", "uid=2", nil),
	}
	table.Replace(0, all)
	counts := func() string {
		var out []string
		for _, r := range table.Summary().Rules {
			if r.WouldDeny > 0 {
				out = append(out, fmt.Sprintf("%s %d", r.Rule, r.WouldDeny))
			}
		}
		return strings.Join(out, " ")
	}
	uid, ip := event.Dim{Name: "uid", Value: "1"}, event.Dim{Name: "ip", Value: "10.0.0.1"}
	for _, is := range []struct {
		what string
		do   func() bool
		want string
	}{
		{"nobody", func() bool { return table.Check("order.create", "9").Allowed }, ""},
		{"two rules", func() bool { return table.Check("order.create", "1").Allowed }, "a 1 b 1"},
		{"one covers the API", func() bool { return table.Check("search.query", "1").Allowed }, "a 1 b 2"},
		{"an enforced rule denies", func() bool { return !table.Check("order.create", "2").Allowed }, "a 1 b 2"},
		{"several keys", func() bool { return table.CheckDims("order.create", []event.Dim{uid, ip}).Allowed }, "a 2 b 3 c 1"},
		{"it only asks", func() bool { return table.CheckDimsAt(t0, "order.create", []event.Dim{uid, ip}).Allowed }, "a 2 b 3 c 1"},
		{"a new snapshot", func() bool { table.Replace(0, all); return table.Check("order.create", "1").Allowed }, "a 3 b 4 c 1"},
		{"off", func() bool {
			table.SetEnabled(false)
			defer table.SetEnabled(true)
			return table.Check("a", "1").Allowed
		}, "a 3 b 4 c 1"},
		{"ended", func() bool { at.Store(int64(t0 + event.Minute)); return table.Check("order.create", "1").Allowed }, "a 3 b 4 c 1"},
	} {
		if !is.do() {
			t.Errorf("%s: the wrong answer", is.what)
		}
		if got := counts(); got != is.want {
			t.Errorf("%s: counted %q, want %q", is.what, got, is.want)
		}
	}
}

// What middleware tells is counted by rule and action. Who is denied chooses no label: rules are bounded.
func TestDecisionsByRule(t *testing.T) {
	table, _ := moved(t)
	table.Replace(0, []verdict.Verdict{
		block("a", "uid=1", nil), block("a", "uid=2", func(v *verdict.Verdict) { v.Action = verdict.ActLog }), block("b", "uid=3", nil),
	})
	for _, uid := range []string{"1", "1", "2", "3", "4"} {
		table.CountDecision(table.Check("x", uid))
	}
	if got, want := text(table.Summary()), "3; a 2 0 0 map[log:1 block:2]; b 1 0 0 map[block:1]"; got != want {
		t.Errorf("there are %s, want %s", got, want)
	}
	many := newTable(t)
	var all []verdict.Verdict
	for i := range 1100 {
		all = append(all, block("r"+strconv.Itoa(i), "uid=u", func(v *verdict.Verdict) { v.Since, v.Until = 0, now()+event.Hour }))
	}
	many.Replace(0, all)
	for i := range all {
		many.CountDecision(Decision{by: &all[i]})
	}
	s := many.Summary()
	keys, checks := 0, uint64(0)
	for _, r := range s.Rules {
		keys, checks = keys+r.Blocked, checks+r.Decided[verdict.ActBlock]
	}
	if len(s.Rules) != 1001 || s.Rules[0].Rule != "(other)" || s.Rules[0].Blocked != 100 || s.Rules[0].Decided[verdict.ActBlock] != 100 || keys != 1100 || checks != 1100 {
		t.Errorf("%d rules, the first %+v; %d keys, %d checks", len(s.Rules), s.Rules[0], keys, checks)
	}
}

// A large table is walked once in a while, and never long ago.
func TestAWalkServesForAWhile(t *testing.T) {
	table, at := moved(t)
	var all []verdict.Verdict
	for i := range 20_000 {
		all = append(all, block("r", "uid="+strconv.Itoa(i), nil))
	}
	table.Replace(0, all)
	blocked := func() int { return table.Summary().Rules[0].Blocked }
	if n := blocked(); n != len(all) {
		t.Fatalf("%d are blocked", n)
	}
	table.Replace(0, all[:10])
	for _, is := range []struct {
		what  string
		after event.Micros
		want  int
	}{
		{"Refresh", 59_999, 20_000}, {"", 179_999, 20_000}, {"Refresh", 60_000, 10}, // then it is a small table
		{"", 59_999, 10}, {"", event.Minute, 0}, {"", 0, 10},
	} {
		if at.Store(int64(t0 + is.after)); is.what == "Refresh" {
			table.Refresh()
		}
		if n := blocked(); n != is.want {
			t.Errorf("after %v, %s, %d are blocked, want %d", is.after.Duration(), is.what, n, is.want)
		}
	}
	table.Replace(0, all)
	blocked()
	table.Replace(0, all[:10])
	if at.Store(int64(t0 + 180_000)); blocked() != 10 {
		t.Errorf("nobody refreshes, and %d are blocked", blocked())
	}
	// While somebody walks, who is content with the last walk does not wait.
	table.Replace(0, all)
	blocked()
	table.walking.Lock()
	defer table.walking.Unlock()
	if n := blocked(); n != len(all) {
		t.Errorf("beside a walk %d are blocked", n)
	}
}

// What is counted costs no check an allocation: neither in shadow mode, nor in middleware.
func TestCountsDontAllocate(t *testing.T) {
	table := filled(t)
	table.Apply(0, []verdict.Verdict{
		block("s", "uid=u1", func(v *verdict.Verdict) { shadow(v); v.Since, v.Until = 0, now()+event.Hour }),
		block("s", "uid=only", func(v *verdict.Verdict) { shadow(v); v.Since, v.Until = 0, now()+event.Hour }),
	})
	dims := []event.Dim{{Name: "uid", Value: "only"}, {Name: "ip", Value: "10.0.0.1"}}
	for name, check := range map[string]func() bool{
		"shadow":      func() bool { return table.Check("a", "only").Allowed },
		"shadow dims": func() bool { return table.CheckDims("a", dims).Allowed },
		"counted":     func() bool { d := table.Check("a", "u77"); table.CountDecision(d); return !d.Allowed },
	} {
		if !check() {
			t.Errorf("%s: wrong answer", name)
		}
		if n := testrun.Allocs(1000, func() { check() }); n != 0 {
			t.Errorf("%s: %v allocations a check, want none", name, n)
		}
	}
	if n := table.Summary().Rules[1].WouldDeny; n < 2000 {
		t.Errorf("%d counted", n)
	}
}

func BenchmarkSummary(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			table := newTable(b)
			all := make([]verdict.Verdict, n)
			for i := range all {
				all[i] = block("r"+strconv.Itoa(i%50), "uid=u"+strconv.Itoa(i), func(v *verdict.Verdict) { v.Since, v.Until = 0, now()+event.Hour })
			}
			table.Replace(0, all)
			b.Run("walk", func(b *testing.B) {
				for b.Loop() {
					tallyOf(&table.index, now())
				}
			})
			b.Run("in force", func(b *testing.B) {
				for b.Loop() {
					table.InForce()
				}
			})
			b.Run("served", func(b *testing.B) {
				for b.Loop() {
					table.Summary()
				}
			})
		})
	}
}
