package enforce

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

// keyShapes are lists of dimensions that keys may have, of every kind.
var keyShapes = [][]string{
	{"uid"}, {"all"}, {"api"}, {"api", "uid"}, {"ip"}, {"ip/24"}, {"ip/64"}, {"ip/56"}, {"ip/16/48"}, {"ip/24/128"}, {"ip/32/32"},
	{"api", "ip/24"}, {"attrs.a"}, {"api", "attrs.a", "uid"}, {"ip", "ip/24", "ip/48"}, {"attrs.a", "ip/8"},
}

// caller draws who asks for what, of few.
func caller(r *rand.Rand) (e event.Event, dims []event.Dim) {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	e = event.Event{API: pick("login", "search.query", "search.suggest", "a*b"), UID: pick("", "1", "2", "3")}
	if e.UID != "" {
		dims = append(dims, event.Dim{Name: "uid", Value: e.UID})
	}
	if ip := pick("", "10.1.2.3", "10.1.2.9", "10.1.9.9", "10.77.0.1", "::ffff:10.1.2.3", "2001:db8::1", "2001:db8:0:1::1", "2001:db8:0:100::1", "2001:db9::"); ip != "" {
		e.IP = netip.MustParseAddr(ip)
		dims = append(dims, event.Dim{Name: "ip", Value: ip})
	}
	if a := pick("", "x", "y"); a != "" {
		e.Attrs = []event.Attr{{Name: "a", Value: event.StringValue(a)}}
		dims = append(dims, event.Dim{Name: "attrs.a", Value: a})
	}
	return e, dims
}

// keyFor returns the key that an event has of a shape; nil when it lacks a dimension.
func keyFor(e *event.Event, shape []string) (key []event.Dim) {
	for _, name := range shape {
		value, ok := e.Dim(name)
		if !ok {
			return nil
		}
		key = append(key, event.Dim{Name: name, Value: value})
	}
	return key
}

// A check finds the verdict of each key that an event of the same caller counts under, and no other.
func TestAChecksKeysAreItsEventsKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	for range 300 {
		table, held := newTable(t), map[string]bool{}
		for range r.IntN(6) {
			e, _ := caller(r)
			if key := keyFor(&e, keyShapes[r.IntN(len(keyShapes))]); key != nil && !held[event.FormatKey(key)] {
				held[event.FormatKey(key)] = true
				v := block("r", event.FormatKey(key), nil)
				if value, ok := e.Dim("api"); ok && key[0].Name == "api" {
					v.APIs = []string{value}
				}
				table.Apply(0, []verdict.Verdict{v})
			}
		}
		for range 30 {
			e, dims := caller(r)
			var want, ofUser []string
			for _, shape := range keyShapes {
				if key := event.FormatKey(keyFor(&e, shape)); held[key] {
					want = append(want, key)
				}
				if key := event.FormatKey(keyFor(&event.Event{API: e.API, UID: e.UID}, shape)); held[key] {
					ofUser = append(ofUser, key)
				}
			}
			about := fmt.Sprintf("%v holds; %s by %v", held, e.API, dims)
			if d := table.CheckDimsAt(t0, e.API, dims); d.Allowed != (len(want) == 0) {
				t.Fatalf("%s: allowed is %t, want verdicts on %q", about, d.Allowed, want)
			}
			if d := table.CheckAt(t0, API(e.API), e.UID); d.Allowed != (len(ofUser) == 0) {
				t.Fatalf("%s: of the user allowed is %t, want verdicts on %q", about, d.Allowed, ofUser)
			}
			if len(want) > 0 && !table.MayDeny(dims) {
				t.Fatalf("%s: MayDeny says that no API is denied, and %q are blocked", about, want)
			}
			var got []string
			for _, v := range table.VerdictsAt(t0, e.API, dims) {
				got = append(got, v.KeyText())
				if api, ok := e.Dim("api"); ok && v.Key[0].Name == "api" && !slices.Equal(v.APIs, []string{api}) {
					t.Fatalf("%s covers %q", v.KeyText(), v.APIs)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("%s: verdicts on %q, want %q", about, got, want)
			}
		}
	}
}

// Check meets a verdict on an API, and on all, as soon as it is there, and forgets it as soon as it has gone.
func TestCheckMeetsVerdictsOnAPIsAndOnAll(t *testing.T) {
	table := newTable(t)
	inForce := func(v *verdict.Verdict) { v.Since, v.Until = 0, t0 }
	for _, key := range []string{"api=login", "all=true", "api=login&uid=42"} {
		v := block("r", key, inForce)
		for _, ended := range []bool{false, true} {
			if v.State = verdict.Block; ended {
				v.State = verdict.Clear
			}
			table.Apply(0, []verdict.Verdict{v})
			if d := table.Check("login", "42"); d.Allowed != ended {
				t.Errorf("%s: ended %t, allowed %t", key, ended, d.Allowed)
			}
			if d := table.Check("other", "42"); d.Allowed != (ended || key != "all=true") {
				t.Errorf("%s: ended %t, another API is allowed %t", key, ended, d.Allowed)
			}
		}
	}
}

func TestChecksOfAllShapesDontAllocate(t *testing.T) {
	table := newTable(t)
	for _, key := range []string{"all=true", "api=x", "api=login&uid=7", "ip/24=10.1.9.0%2F24", "ip/56=2001%3Adb8%3A%3A%2F56"} {
		table.Apply(0, []verdict.Verdict{block("r", key, nil)})
	}
	dims := []event.Dim{{Name: "uid", Value: "42"}, {Name: "ip", Value: "2001:db8:7::77"}}
	if n := testrun.Allocs(1000, func() {
		if !table.Check("login", "42").Allowed || !table.CheckDims("login", dims).Allowed || !table.CheckDims("login", nil).Allowed {
			t.Fatal("denied before it begins")
		}
	}); n != 0 {
		t.Errorf("%v allocations a check, want none", n)
	}
}

// While the table is stale, a limit of this process counts by the same keys.
func TestLocalLimitsOfAPIsNetworksAndAll(t *testing.T) {
	ip := func(of string) []event.Dim { return []event.Dim{{Name: "ip", Value: of}} }
	for _, c := range []struct {
		key         string
		same, other func(*localLimit) bool // whether another request is let in, of the same key and of another one
	}{
		{"all", func(l *localLimit) bool { _, ok := l.take(1, "b", ip("192.0.2.1")); return ok }, nil},
		{"api", func(l *localLimit) bool { _, ok := l.take(1, "a", nil); return ok }, func(l *localLimit) bool { _, ok := l.take(1, "b", nil); return ok }},
		{"ip/24", func(l *localLimit) bool { _, ok := l.take(1, "b", ip("10.0.0.9")); return ok }, func(l *localLimit) bool { _, ok := l.take(1, "a", ip("10.0.1.1")); return ok }},
	} {
		l := newLocalLimit("r", RuleOnStale{Do: Local, APIs: []string{"*"}, Key: []string{c.key}, Limit: 1, Per: time.Hour}, 1)
		if _, ok := l.take(1, "a", ip("10.0.0.1")); !ok || c.same(l) {
			t.Errorf("%s: the first is let in %t, and then another one", c.key, ok)
		}
		if c.other != nil && !c.other(l) {
			t.Errorf("%s: another key is denied", c.key)
		}
	}
}
