package admit

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/servers"
	"github.com/tallygate/tallygate/internal/testrun"
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
