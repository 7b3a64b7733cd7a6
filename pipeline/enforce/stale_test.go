package enforce

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

// running makes a table and runs it until the test ends.
func running(t *testing.T, cfg Config) *Table {
	t.Helper()
	table, err := NewTable(cfg)
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, table.Run)
	return table
}

// blockedNow are verdicts on user 42 for an hour: by rule orders for order.*, and by search for search.*.
func blockedNow() []verdict.Verdict {
	at := now()
	hour := func(api string) func(*verdict.Verdict) {
		return func(v *verdict.Verdict) { v.Since, v.Until, v.APIs = at, at+event.Hour, []string{api} }
	}
	return []verdict.Verdict{block("orders", "uid=42", hour("order.*")), block("search/burst", "uid=42", hour("search.*"))}
}

// answers lists the outcomes of some checks: allowed, the rule that denies, or unavailable.
func answers(table *Table) string {
	var all []string
	for _, c := range [][2]string{{"order.create", "42"}, {"search.query", "42"}, {"order.create", "7"}, {"search.query", "7"}, {"login", "7"}} {
		d := table.Check(API(c[0]), c[1])
		switch {
		case d.Allowed:
			all = append(all, "-")
		case d.Unavailable():
			all = append(all, "503")
		default:
			all = append(all, d.Rule())
		}
	}
	return strings.Join(all, " ")
}

func TestAnswersOfAStaleTable(t *testing.T) {
	open := map[string]RuleOnStale{"search": {Do: Open}}
	for _, c := range []struct {
		name           string
		cfg            Config
		before, behind string // before the first snapshot, and when the table has fallen behind
	}{
		{"last known", Config{}, "- - - - -", "orders search/burst - - -"},
		{"open", Config{OnStale: Open}, "- - - - -", "- - - - -"},
		{"closed", Config{OnStale: Closed}, "503 503 503 503 503", "orders search/burst 503 503 503"},
		{"a rule is open", Config{Rules: open}, "- - - - -", "orders - - - -"},
		{"a rule is known, others open", Config{OnStale: Open, Rules: map[string]RuleOnStale{"search": {}}}, "- - - - -", "- search/burst - - -"},
		{"a rule is closed", Config{Rules: map[string]RuleOnStale{"orders": {Do: Closed, APIs: []string{"order.*"}}}},
			"503 - 503 - -", "orders search/burst 503 - -"},
		{"all closed but what a rule is about", Config{OnStale: Closed, Rules: map[string]RuleOnStale{"search": {APIs: []string{"search.*"}}}},
			"503 - 503 - 503", "orders search/burst 503 - 503"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const certain = "orders search/burst - - -"
				table := running(t, c.cfg)
				synctest.Wait()
				if got := answers(table); got != c.before {
					t.Errorf("before the first snapshot: %s, want %s", got, c.before)
				}
				table.Replace(0, blockedNow())
				table.Heartbeat(0, now())
				if got := answers(table); got != certain {
					t.Errorf("with a snapshot: %s, want %s", got, certain)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := answers(table); got != certain {
					t.Errorf("a minute behind: %s, want %s", got, certain)
				}
				time.Sleep(30 * time.Millisecond)
				synctest.Wait()
				if got := answers(table); got != c.behind || !table.Stale() {
					t.Errorf("further behind: %s, stale %v, want %s", got, table.Stale(), c.behind)
				}
				table.Heartbeat(0, now())
				if got := answers(table); got != certain || table.Stale() {
					t.Errorf("in step again: %s, want %s", got, certain)
				}
			})
		})
	}
}

// A table is stale from the start to the first snapshot, and while it is too far behind, whatever the policy.
func TestStaleTime(t *testing.T) {
	for _, cfg := range []Config{{}, {OnStale: Closed}} {
		synctest.Test(t, func(t *testing.T) {
			table := running(t, cfg)
			spent := func(when string, stale bool, want time.Duration) {
				t.Helper()
				synctest.Wait()
				if got := table.StaleTime(); (got-want).Abs() > 100*time.Millisecond || table.Stale() != stale {
					t.Errorf("%s: %v stale, now: %v; want %v and %v", when, got, table.Stale(), want, stale)
				}
			}
			time.Sleep(7 * time.Second)
			spent("before the first snapshot", true, 7*time.Second)
			table.Replace(0, blockedNow())
			table.Heartbeat(0, now())
			spent("in step", false, 7*time.Second)
			time.Sleep(time.Minute + 3*time.Second)
			spent("a minute and 3 s behind", true, 10*time.Second)
			table.Heartbeat(0, now())
			time.Sleep(30 * time.Second)
			spent("in step again", false, 10*time.Second)
		})
	}
}

// Of 100 a minute, each of ten instances grants 10 at once, and then one every 6 s.
func TestALocalLimitStandsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := running(t, Config{Instances: 10, OnStale: Local, Rules: map[string]RuleOnStale{
			"search": {Do: Local, APIs: []string{"search.*"}, Key: []string{"uid"}, Limit: 100, Per: time.Minute},
			"signup": {Do: Local, APIs: []string{"signup"}, Key: []string{"ip/64"}, Limit: 1, Per: time.Hour},
		}})
		granted := func(n int) (ok int, last Decision) {
			for range n {
				if last = table.Check("search.query", "7"); last.Allowed {
					ok++
				}
			}
			return ok, last
		}
		ok, d := granted(25)
		if ok != 10 || d.Rule() != "search" || d.RetryAfter() != 6*time.Second {
			t.Errorf("%d granted at once, then %q for %v, want 10, search, 6s", ok, d.Rule(), d.RetryAfter())
		}
		if !table.Check("search.query", "8").Allowed || !table.Check("login", "7").Allowed {
			t.Error("someone else, or another API, is denied")
		}
		time.Sleep(d.RetryAfter())
		if ok, _ := granted(5); ok != 1 {
			t.Errorf("%d granted after Retry-After, want 1", ok)
		}
		time.Sleep(10 * time.Minute)
		if ok, _ := granted(25); ok != 10 {
			t.Errorf("%d granted when the bucket is full again, want 10", ok)
		}
		ip := func(text string) bool {
			return table.CheckDims("signup", []event.Dim{{Name: "ip", Value: text}}).Allowed
		}
		if !ip("2001:db8::1") || ip("2001:db8::2") || !ip("2001:db8:0:1::2") {
			t.Error("addresses of one network don't share a local limit, or others do")
		}
		table.Replace(0, blockedNow())
		table.Heartbeat(0, now())
		if ok, _ := granted(25); ok != 25 {
			t.Errorf("%d of 25 granted when not stale", ok)
		}
	})
}

// Past its bound each new key cost a look at all of them, under one lock: 2 ms. Twenty thousand keys took most of a minute.
func TestALocalLimitIsBounded(t *testing.T) {
	l := newLocalLimit("r", RuleOnStale{APIs: []string{"*"}, Limit: 1, Per: 24 * time.Hour}, 1)
	take := func(uid string) bool {
		_, ok := l.take(1, "a", []event.Dim{{Name: "uid", Value: uid}})
		return ok
	}
	for i := range maxLocalKeys + 20_000 {
		if !take(strconv.Itoa(i)) {
			t.Fatalf("key %d is denied for what others did", i)
		}
	}
	if looks := len(localShard{}.sets[0]); looks != 8 {
		t.Errorf("a key looks at %d places, want 8 however many keys there are", looks)
	}
	if take(strconv.Itoa(maxLocalKeys + 19_999)) {
		t.Error("granted twice")
	}
	if n := testrun.Allocs(100, func() { take("42") }); n > 1 {
		t.Errorf("%v allocations a check, want no more than an address's", n)
	}
}

// Two ways to write a value are one key, as in verdicts.
func TestALocalLimitCountsCanonicalValues(t *testing.T) {
	l := newLocalLimit("r", RuleOnStale{APIs: []string{"*"}, Limit: 1, Per: time.Hour}, 1)
	for i, uid := range []string{"a\xff", "a\xfe"} {
		if _, ok := l.take(1, "a", []event.Dim{{Name: "uid", Value: uid}}); ok != (i == 0) {
			t.Errorf("%q: granted %v", uid, ok)
		}
	}
}

// A flood of keys that come once doesn't wash out those that are over their limit.
func TestAFloodOfKeysLeavesTheWorstInPlace(t *testing.T) {
	l := newLocalLimit("r", RuleOnStale{APIs: []string{"*"}, Limit: 100, Per: time.Hour}, 1)
	worst := []event.Dim{{Name: "uid", Value: "worst"}}
	for range 100 {
		l.take(1, "a", worst)
	}
	for i := range 3 * maxLocalKeys {
		l.take(1, "a", []event.Dim{{Name: "uid", Value: strconv.Itoa(i)}})
	}
	if _, ok := l.take(1, "a", worst); ok {
		t.Error("let through: its bucket was given to another")
	}
}

func BenchmarkLocalLimitBeyondItsBound(b *testing.B) {
	l := newLocalLimit("r", RuleOnStale{APIs: []string{"*"}, Limit: 1, Per: 24 * time.Hour}, 1)
	uids := make([]string, 2*maxLocalKeys)
	for i := range uids {
		uids[i] = strconv.Itoa(i)
	}
	var next atomic.Int64
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			l.take(1, "a", []event.Dim{{Name: "uid", Value: uids[next.Add(1)%int64(len(uids))]}})
		}
	})
}

func TestKillSwitches(t *testing.T) {
	file := filepath.Join(t.TempDir(), "off")
	blocked := func(table *Table) bool { return !table.Check("order.create", "42").Allowed }
	synctest.Test(t, func(t *testing.T) {
		table := running(t, Config{OffFile: file, OnStale: Closed})
		table.Replace(0, blockedNow())
		table.Heartbeat(0, now())
		steps := []struct {
			name string
			do   func()
			want bool
		}{
			{"on", func() {}, true},
			{"switched off", func() { table.SetEnabled(false) }, false},
			{"switched on", func() { table.SetEnabled(true) }, true},
			{"the file exists", func() { _ = os.WriteFile(file, nil, 0o600); time.Sleep(offFileEvery + 50*time.Millisecond) }, false},
			{"both", func() { table.SetEnabled(false) }, false},
			{"the file only", func() { table.SetEnabled(true) }, false},
			{"the file is gone", func() { _ = os.Remove(file); time.Sleep(offFileEvery + 50*time.Millisecond) }, true},
		}
		for _, step := range steps {
			step.do()
			synctest.Wait()
			if blocked(table) != step.want || table.Enabled() != step.want {
				t.Errorf("%s: denied %v, enabled %v, want %v", step.name, blocked(table), table.Enabled(), step.want)
			}
		}
	})
	t.Setenv("TALLYGATE_ENFORCE", "off")
	table := newTable(t)
	table.Replace(0, blockedNow())
	if blocked(table) || table.Enabled() {
		t.Error("enforced in spite of TALLYGATE_ENFORCE=off")
	}
}

func TestConfigsThatMakeNoSense(t *testing.T) {
	_, err := NewTable(Config{
		Shards: -1, OnStale: 9, MaxStaleness: -1, Instances: -1,
		Rules: map[string]RuleOnStale{"a": {Do: Closed}, "b": {Do: Local, APIs: []string{"x"}, Key: []string{"ip", "user"}}},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"Shards", "OnStale is 9", "MaxStaleness", "Instances", `Rules["a"].APIs`, `Rules["b"] has Limit 0`, `Rules["b"].Key has "user"`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in: %v", part, err)
		}
	}
}

func TestNamesOfOnStale(t *testing.T) {
	for d := LastKnown; d <= Local; d++ {
		var back OnStale
		text, err := d.MarshalText()
		if err := back.UnmarshalText(text); err != nil || back != d {
			t.Errorf("%v is read as %v, %v", d, back, err)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if new(OnStale).UnmarshalText([]byte("maybe")) == nil || OnStale(9).String() != "unknown(9)" {
		t.Error("what is no name is one")
	}
}
