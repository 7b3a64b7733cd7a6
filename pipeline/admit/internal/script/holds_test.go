package script

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

// TestGrantsUnderSomeLimits: permits are granted under limits with a hold up to that of the grants, by the rules
// and in the life that they name, until they end. Until then those under all limits, if there are any, go before.
func TestGrantsUnderSomeLimits(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		r := newRig(t, client, 1)
		apply := func(b protocol.Batch) {
			t.Helper()
			b.Of, b.Start, b.Next, b.Beat = 2, r.seq, r.seq+int64(len(b.Records)), r.now
			want := r.memory.Apply(r.process(), &b)
			got, err := r.shards.Apply(t.Context(), &b)
			r.same("apply", want, got, err)
			r.seq, r.life = want.Reached, want.Life
		}
		n := 0
		asks := func(what string, want protocol.Status, version uint64, holds ...event.Micros) {
			t.Helper()
			n++
			q := &protocol.Ask{Key: "k", IDs: []string{string(rune('a' + n))}, Before: r.now + event.Second, Version: version}
			for i, hold := range holds {
				w := limits[i]
				w.Amount, w.Threshold, w.Hold = event.One, 1_000_000*event.One, hold
				q.Wants = append(q.Wants, w)
			}
			reference := r.memory.Admit(r.process(), q)
			got, err := r.shards.Admit(t.Context(), q)
			r.same(what, reference, got, err)
			if got.Status != want {
				t.Errorf("%s: %v, want %v", what, got.Status, want)
			}
		}
		some := func() protocol.Record {
			return protocol.Record{Grants: &protocol.Grants{Run: r.run, Life: r.life, Until: r.now + protocol.Lease, Hold: 10 * event.Second, Rules: 1}}
		}
		apply(protocol.Batch{Records: []protocol.Record{{Version: 1}}})
		apply(protocol.Batch{Records: []protocol.Record{some()}})
		asks("a short hold", protocol.Granted, 1, 10*event.Second)
		asks("two short holds", protocol.Granted, 1, 9*event.Second, 10*event.Second)
		asks("a longer one", protocol.Doubt, 1, 10*event.Second+1)
		asks("a longer one beside", protocol.Doubt, 1, event.Second, 11*event.Second)
		apply(protocol.Batch{Records: []protocol.Record{{Version: 2}}})
		asks("by other rules", protocol.Doubt, 2, event.Second)
		apply(protocol.Batch{Records: []protocol.Record{{Version: 1}}})
		asks("by these again", protocol.Granted, 1, event.Second)
		apply(protocol.Batch{Begin: true})
		asks("in another life", protocol.Doubt, 1, event.Second)
		apply(protocol.Batch{Records: []protocol.Record{some()}})
		asks("of which the owner has said so", protocol.Granted, 1, event.Second)
		r.now += protocol.Lease
		apply(protocol.Batch{})
		asks("when they are over", protocol.Doubt, 1, event.Second)
		apply(protocol.Batch{Records: []protocol.Record{{Grants: &protocol.Grants{Run: r.run, Life: r.life, Until: r.now + protocol.Lease}}}})
		asks("where all are granted", protocol.Granted, 1, event.Hour)
		apply(protocol.Batch{Records: []protocol.Record{some()}})
		asks("behind grants under all", protocol.Granted, 1, event.Hour)
	})
}
