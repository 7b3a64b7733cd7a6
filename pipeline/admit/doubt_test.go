package admit

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// TestTheReasonOfADoubt: whoever is denied, and the log, are told what is wrong with Redis.
func TestTheReasonOfADoubt(t *testing.T) {
	r := newRig(t, servers.StartRedis(t).Addr())
	r.rules(1, "    - {name: a, match: {api: x}, limit: 100, per: 1h, strict: true}\n")
	for _, c := range []struct {
		name         string
		wrong, right []any
		says         string
	}{
		{"full", []any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}, "no memory left"},
		{"a right is missing", []any{"ACL", "SETUSER", "default", "-evalsha"}, []any{"ACL", "SETUSER", "default", "+evalsha"}, "refuses the user"},
	} {
		for _, on := range []OnDoubt{Closed, Open} {
			t.Run(c.name+", "+on.String(), func(t *testing.T) {
				var log testrun.Output
				a := r.admitter(func(c *Config) { c.OnDoubt, c.Logger = on, slog.New(slog.NewTextHandler(&log, nil)) })
				if p := r.admit(a, uid("x", "1")); !p.Admitted || p.InDoubt {
					t.Fatalf("when all is well: %+v", p)
				}
				r.do(c.wrong...)
				p := r.admit(a, uid("x", "2"))
				r.do(c.right...)
				if p.Admitted != (on == Open) || !p.InDoubt || !strings.Contains(p.Reason, c.says) {
					t.Errorf("%+v", p)
				}
				does := "requests are denied"
				if on == Open {
					does = "requests are let in"
				}
				said := log.String()
				for _, part := range []string{does, c.says, "error=", "rule=a"} {
					if !strings.Contains(said, part) {
						t.Errorf("the log lacks %q: %s", part, said)
					}
				}
				if p := r.admit(a, uid("x", "2")); !p.Admitted || p.InDoubt {
					t.Errorf("when all is well again: %+v", p)
				}
			})
		}
	}
}

const across64 = "    - {name: a, match: {api: x}, limit: %d, per: 1h, strict: {hold: 5m}%s}\n"

// crossings are changes of across64 that leave it the same limit, from a limit of 100 of which 60 are used, and how
// many may be used behind each of them.
var crossings = []struct {
	limit int
	more  string
	used  int
}{
	{70, "", 70},
	{64, "", 70},
	{64, ", refunds: true", 70},
	{72, ", refunds: true", 72},
	{64, ", tiers: [{when: 'attrs.plan == \"pro\"', limit: 90}]", 72},
	{64, "", 72},
	{100, "", 100},
	{64, "", 100},
}

// TestAReloadForgetsNoPermits: a limit whose counters are called otherwise behind a reload knows what is under way.
func TestAReloadForgetsNoPermits(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.rules(1, fmt.Sprintf(across64, 100, ""))
		a := r.admitter()
		used := r.use(a, 60)
		for i, c := range crossings {
			r.rules(uint64(i+2), fmt.Sprintf(across64, c.limit, c.more))
			if used += r.use(a, 1000); used != c.used {
				t.Errorf("with limit %d%s %d are under way, want %d", c.limit, c.more, used, c.used)
			}
		}
	})
}

// TestAReloadForgetsNoShare is the same for the share of a process while Redis may not grant anything.
func TestAReloadForgetsNoShare(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.put(1, fmt.Sprintf(across64, 100, ""))
		a := r.admitter(func(c *Config) { c.OnDoubt, c.Enforcers = Local, 1 })
		used := r.use(a, 60)
		for i, c := range crossings {
			r.put(uint64(i+2), fmt.Sprintf(across64, c.limit, c.more))
			testrun.Eventually(t, "the rules are read", func() bool { return a.Stats().Version == uint64(i+2) })
			if used += r.use(a, 1000); used != c.used {
				t.Errorf("with limit %d%s %d were let in, want %d", c.limit, c.more, used, c.used)
			}
		}
	})
}

// use asks for permits until one is denied, for so many at most.
func (r *rig) use(a *Admitter, most int) (n int) {
	for n < most && r.admit(a, uid("x", "1")).Admitted {
		n++
	}
	return n
}

func (r *rig) do(command ...any) {
	r.t.Helper()
	if err := r.client.Do(r.t.Context(), command...).Err(); err != nil {
		r.t.Fatal(err)
	}
}

// TestADoubtBeforeTheRulesAreKnownIsLogged, whatever becomes of the request.
func TestADoubtBeforeTheRulesAreKnownIsLogged(t *testing.T) {
	r := newRig(t, servers.FreeAddr(t))
	for _, on := range []OnDoubt{Closed, Open, Local} {
		var log testrun.Output
		a, err := New(Config{Redis: r.client, OnDoubt: on, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		r.admit(a, uid("x", "1"))
		r.admit(a, uid("x", "2"))
		if said := log.String(); strings.Count(said, "the rules are not known yet") != 1 {
			t.Errorf("%v: the log says %s", on, said)
		}
	}
}
