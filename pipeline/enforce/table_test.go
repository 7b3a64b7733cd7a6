package enforce

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/rig"
	"github.com/tallygate/tallygate/verdict"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const second = event.Second

// t0 is far enough in the future that no test's verdict has run out.
var t0 = event.FromTime(time.Now()) + event.Day

func newTable(t testing.TB) *Table { t.Helper(); return newTableWith(t, Config{}) }

func newTableWith(t testing.TB, cfg Config) *Table {
	t.Helper()
	table, err := NewTable(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// block is a verdict on a key such as "uid=42", from t0 for a minute.
func block(rule, key string, change func(*verdict.Verdict)) verdict.Verdict {
	return rig.Block(rule, key, t0, t0+event.Minute, change)
}

func TestAVerdictIsInForceFromSinceUntilUntil(t *testing.T) {
	table := newTable(t)
	table.Apply(0, []verdict.Verdict{block("r", "uid=42", nil)})
	for _, c := range []struct {
		at      event.Micros
		allowed bool
		retry   int64
	}{
		{t0 - 1, true, 0}, {t0, false, 60}, {t0 + 1, false, 60}, {t0 + second, false, 59},
		{t0 + second + 1, false, 59}, {t0 + event.Minute - 1, false, 1}, {t0 + event.Minute, true, 0},
	} {
		d := table.CheckAt(c.at, "a", "42")
		if d.Allowed != c.allowed || d.RetryAfter() != time.Duration(c.retry)*time.Second {
			t.Errorf("at t0%+d µs: allowed %v, retry after %v, want %v, %d s", c.at-t0, d.Allowed, d.RetryAfter(), c.allowed, c.retry)
		}
	}
	if d := table.CheckAt(t0, "a", "43"); !d.Allowed || d.Rule() != "" {
		t.Errorf("another user: %+v, want it allowed", d)
	}
}

func TestTheStrongestActionThenTheLatestUntilDecides(t *testing.T) {
	longer := func(v *verdict.Verdict) { v.Until += event.Hour }
	act := func(a verdict.Action) func(*verdict.Verdict) {
		return func(v *verdict.Verdict) { v.Action = a; v.Until += event.Day }
	}
	table := newTable(t)
	steps := []struct {
		add     verdict.Verdict
		rule    string
		allowed bool
		shown   int
	}{
		{block("logged", "uid=42", act(verdict.ActLog)), "logged", true, 1},
		{block("throttled", "uid=42", act(verdict.ActThrottle)), "throttled", false, 2},
		{block("challenged", "uid=42", act(verdict.ActChallenge)), "challenged", false, 3},
		{block("short", "uid=42", nil), "short", false, 4},
		{block("long", "uid=42", longer), "long", false, 5},
		{block("elsewhere", "uid=42", func(v *verdict.Verdict) { longer(v); v.APIs = []string{"b.*"}; v.Until++ }), "long", false, 5},
		{block("shadow", "uid=42", func(v *verdict.Verdict) { longer(v); v.Mode = verdict.Shadow; v.Until++ }), "long", false, 6},
		{block("notice", "uid=42", func(v *verdict.Verdict) { longer(v); v.State = verdict.Warn; v.Until++ }), "long", false, 7},
	}
	dims := []event.Dim{{Name: "uid", Value: "42"}}
	for _, step := range steps {
		table.Apply(0, []verdict.Verdict{step.add})
		d := table.CheckAt(t0, "a.b", "42")
		if d.Rule() != step.rule || d.Allowed != step.allowed {
			t.Errorf("with %s: %s decides, allowed %v, want %s, %v", step.add.Rule, d.Rule(), d.Allowed, step.rule, step.allowed)
		}
		if got := table.VerdictsAt(t0, "a.b", dims); len(got) != step.shown {
			t.Errorf("with %s: %d are shown, want %d", step.add.Rule, len(got), step.shown)
		} else if got[0].Rule != step.rule {
			t.Errorf("with %s: %s is shown first, want %s", step.add.Rule, got[0].Rule, step.rule)
		}
	}
}

func TestKeysOfSeveralDimensions(t *testing.T) {
	table := newTable(t)
	table.Apply(0, []verdict.Verdict{
		block("ads", "attrs.campaign=c1&uid=42", nil),
		block("addresses", "ip=203.0.113.9", nil),
		block("networks", "ip/64=2001:db8::/64", nil),
		block("networks", "ip/64=198.51.100.7", nil),
		block("devices", "attrs.device=d%261", nil),
	})
	for _, c := range []struct {
		dims []event.Dim
		rule string
	}{
		{[]event.Dim{{Name: "uid", Value: "42"}}, ""},
		{[]event.Dim{{Name: "uid", Value: "42"}, {Name: "attrs.campaign", Value: "c1"}}, "ads"},
		{[]event.Dim{{Name: "attrs.campaign", Value: "c1"}, {Name: "uid", Value: "43"}}, ""},
		{[]event.Dim{{Name: "ip", Value: "203.0.113.9"}}, "addresses"},
		{[]event.Dim{{Name: "ip", Value: "::ffff:203.0.113.9"}}, "addresses"},
		{[]event.Dim{{Name: "ip", Value: "2001:0DB8:0:0:1::5"}}, "networks"},
		{[]event.Dim{{Name: "ip", Value: "2001:db8:0:1::5"}}, ""},
		{[]event.Dim{{Name: "ip", Value: "198.51.100.7"}}, "networks"},
		{[]event.Dim{{Name: "ip", Value: "host.example"}}, ""},
		{[]event.Dim{{Name: "ip/64", Value: "2001:db8::/64"}}, "networks"},
		{[]event.Dim{{Name: "attrs.device", Value: "d&1"}}, "devices"},
		{[]event.Dim{{Name: "attrs.device", Value: ""}}, ""},
		{nil, ""},
	} {
		if d := table.CheckDimsAt(t0, "a", c.dims); d.Rule() != c.rule || d.Allowed != (c.rule == "") {
			t.Errorf("%v: decided by %q, allowed %v, want %q", c.dims, d.Rule(), d.Allowed, c.rule)
		}
	}
	table.Replace(0, nil)
	if table.Len() != 0 {
		t.Errorf("%d verdicts when all is gone", table.Len())
	}
}

func TestWhatIsOlderChangesNothing(t *testing.T) {
	table := newTable(t)
	seq := func(n int64) func(*verdict.Verdict) { return func(v *verdict.Verdict) { v.Seq = n } }
	clearing := func(n int64) verdict.Verdict {
		return block("r", "uid=42", func(v *verdict.Verdict) { v.Seq, v.State, v.Until = n, verdict.Clear, v.Since })
	}
	held := func() int64 {
		for _, v := range table.VerdictsAt(t0, "a", []event.Dim{{Name: "uid", Value: "42"}}) {
			return v.Seq
		}
		return 0
	}
	for i, step := range []struct {
		do   func()
		want int64
	}{
		{func() { table.Apply(0, []verdict.Verdict{block("r", "uid=42", seq(5))}) }, 5},
		{func() { table.Apply(0, []verdict.Verdict{block("r", "uid=42", seq(4))}) }, 5},
		{func() { table.Apply(0, []verdict.Verdict{clearing(4)}) }, 5},
		{func() { table.Apply(0, []verdict.Verdict{clearing(6)}) }, 0},
		{func() { table.Apply(0, []verdict.Verdict{block("r", "uid=42", seq(7))}) }, 7},
		{func() { table.Remove(0, []byte("uid=42|r|warn")) }, 7},
		{func() { table.Remove(0, []byte("uid=42|r")) }, 0},
		{func() { table.Replace(0, []verdict.Verdict{block("r", "uid=42", seq(3))}) }, 3},
		{func() { table.Replace(0, []verdict.Verdict{block("r", "uid=42", seq(2))}) }, 2}, // a snapshot is the truth
	} {
		if step.do(); held() != step.want {
			t.Errorf("step %d: seq %d decides, want %d", i, held(), step.want)
		}
	}
}

func TestShardsAreReplacedApart(t *testing.T) {
	table, err := NewTable(Config{Shards: 2})
	if err != nil {
		t.Fatal(err)
	}
	if table.Ready() {
		t.Error("ready before any snapshot")
	}
	table.Replace(0, []verdict.Verdict{block("r", "uid=1", nil)})
	table.Replace(0, []verdict.Verdict{block("r", "uid=2", nil)})
	if table.Ready() {
		t.Error("ready after the snapshots of one shard of two")
	}
	table.Replace(1, []verdict.Verdict{block("r", "uid=3", nil)})
	table.Heartbeat(0, now())
	if !table.Ready() {
		t.Error("not ready after a snapshot of each shard")
	}
	for uid, allowed := range map[string]bool{"1": true, "2": false, "3": false} {
		if got := table.CheckAt(t0, "a", uid).Allowed; got != allowed {
			t.Errorf("%s: allowed %v, want %v", uid, got, allowed)
		}
	}
	if table.Staleness() > time.Minute {
		t.Errorf("staleness %v before the second shard's first heartbeat, want the time since the table was made", table.Staleness())
	}
	table.Heartbeat(1, now()-event.Hour)
	if s := table.Staleness(); s < time.Hour || s > time.Hour+time.Minute {
		t.Errorf("staleness %v, want an hour", s)
	}
}

func TestRunKeepsTheClockAndSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t)
		stop := testrun.Start(t, table.Run)
		for i := range 1000 {
			v := block("r", fmt.Sprintf("uid=%d", i), nil)
			v.Since = event.FromTime(time.Now())
			v.Until = v.Since + event.Minute
			table.Apply(0, []verdict.Verdict{v})
		}
		time.Sleep(59 * time.Second)
		if table.Check("a", "7").Allowed {
			t.Error("allowed before until")
		}
		time.Sleep(time.Second + 5*time.Millisecond)
		synctest.Wait()
		if !table.Check("a", "7").Allowed {
			t.Error("denied after until")
		}
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		if table.Len() != 1000 {
			t.Errorf("%d verdicts within the grace, want all", table.Len())
		}
		time.Sleep(time.Minute + 30*time.Second)
		synctest.Wait()
		if table.Len() != 0 || table.Bytes() > 8<<10 {
			t.Errorf("%d verdicts in %d bytes after a sweep, want none in few", table.Len(), table.Bytes())
		}
		stop()
		if table.clock.coarse.Load() != 0 {
			t.Error("the coarse clock stands still after Run, and is still used")
		}
	})
}

func TestListPages(t *testing.T) {
	table := newTable(t)
	past := now() - second
	for _, key := range []string{"uid=3", "uid=1", "uid=22", "uid=2", "ip=1.2.3.4"} {
		table.Apply(0, []verdict.Verdict{block("r", key, func(v *verdict.Verdict) { v.Since = past })})
	}
	var got []string
	cursor := ""
	for {
		page, next := table.List("uid=", cursor, 2)
		for _, v := range page {
			got = append(got, v.KeyText())
		}
		got = append(got, "/")
		if cursor = next; cursor == "" {
			break
		}
	}
	if want := []string{"uid=1", "uid=22", "/", "uid=2", "uid=3", "/"}; !slices.Equal(got, want) {
		t.Errorf("pages %v, want %v", got, want)
	}
}
