package aggregate

import (
	"context"
	"fmt"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/verdict"
)

const yearly = `
  rules:
    - name: per-year
      match: {api: "*"}
      limit: 5
      per: year
      window: calendar
      then: {block: until-reset}
`

func TestCountsAndVerdicts(t *testing.T) {
	everyKafka(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, yearly))
		var events []*event.Event
		for i := range 200 {
			for range i%10 + 1 {
				events = append(events, hit(fmt.Sprintf("u%d", i), "x.y"))
			}
		}
		r.emit(events...)
		eventually(t, "all is counted", func() bool {
			for i, uid := range uids(200) {
				if r.count(uid, "per-year", m) != event.Decimal(i%10+1)*event.One {
					return false
				}
			}
			return true
		})
		want := 0
		for i := range 200 {
			if i%10+1 >= 5 {
				want++
			}
		}
		eventually(t, "the verdicts are out", func() bool { return len(r.verdicts()) == want })
		for _, v := range r.verdicts() {
			if v.State != verdict.Block || v.Count != 5*event.One || v.Seq <= 0 || v.Rule != "per-year" {
				t.Fatalf("verdict %+v", v)
			}
		}
		m.end(t)

		m = r.begin(compile(t, yearly))
		for i, uid := range uids(200) {
			if got := r.count(uid, "per-year", m); got != event.Decimal(i%10+1)*event.One {
				t.Fatalf("after a restart %s has %v", uid, got)
			}
		}
		if n := len(r.verdicts()); n != want {
			t.Fatalf("%d verdicts after a restart, want %d", n, want)
		}
	})
}

// An instance that is told to stop stops even without Kafka. The next one replays what it could not
// make durable.
func TestStopsWithoutKafka(t *testing.T) {
	t.Parallel()
	servers.Embedded(t)
	s, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := newRig(t, s.Kafka)
	m := r.begin(compile(t, yearly))
	r.emit(hit("u1", "x.y"))
	eventually(t, "it is counted", func() bool { return r.count("u1", "per-year", m) == event.One })
	r.emit(hit("u1", "x.y"))
	s.Close()
	m.end(t)
}
