package aggregate

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// strictFollower keeps what owners say about strict limits.
type strictFollower struct {
	mu     sync.Mutex
	owners map[int32]*owner.Partition
	next   map[int32]int64
	said   []protocol.Record
	gap    string
}

func (f *strictFollower) Own(partition int32, p *owner.Partition, end int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owners[partition], f.next[partition] = p, end
}

func (f *strictFollower) Disown(partition int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.owners, partition)
}

func (f *strictFollower) Offer(partition int32, first, next int64, records []shard.Strict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next[partition] != first {
		f.gap = fmt.Sprintf("partition %d: %d is offered behind %d", partition, first, f.next[partition])
	}
	f.next[partition] = next
	for _, r := range records {
		f.said = append(f.said, r.Record)
	}
}

// has reports whether a record was said.
func (f *strictFollower) has(ok func(r *protocol.Record) bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.said {
		if ok(&f.said[i]) {
			return true
		}
	}
	return false
}

// An owner publishes levels, counts lost permits, writes grants that its successor knows of, and says how
// far all is durable.
func TestStrictLimitsOfAnOwner(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		set := compile(t, `
  rules:
    - {name: daily, match: {api: "a.*"}, limit: 9, per: day, window: calendar, strict: true}`)
		f := &strictFollower{owners: map[int32]*owner.Partition{}, next: map[int32]int64{}}
		follow := func(c *Config) { c.Strict = f }
		m := r.begin(set, follow)
		e := hit("u1", "a.b")
		e.Permit = event.Permit{ID: "p1", At: event.FromTime(time.Now())}
		r.emit(e)
		level := func(id string, amount event.Decimal) func() bool {
			return func() bool {
				return f.has(func(r *protocol.Record) bool {
					l := r.Level
					return l != nil && l.Key == "uid=u1" && slices.Contains(l.Settles, id) &&
						len(l.Sections) == 1 && l.Sections[0].Steps[0].Amount == amount
				})
			}
		}
		eventually(t, "the level settles the permit", level("p1", event.One))
		id := event.Partition([]byte("u1"), rigPartitions)
		f.mu.Lock()
		p := f.owners[id]
		f.mu.Unlock()
		if last := p.LastGrants(); last != nil {
			t.Errorf("the first owner knows of grants: %+v", last)
		}
		lost := protocol.Lost{Key: "uid=u1", ID: "p2", At: e.Permit.At, Parts: []protocol.Part{{Name: hex.EncodeToString(set.Limits[0].Hash[:]), Amount: event.One}}}
		if err := p.CountLost(t.Context(), []protocol.Lost{lost, lost}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the lost permit is counted", level("p2", 2*event.One))
		g := protocol.Grants{Run: "run", Life: "life", Until: 7}
		for range 2 {
			if err := p.Grant(t.Context(), &g); err != nil {
				t.Fatal(err)
			}
		}
		if !f.has(func(r *protocol.Record) bool { return r.Grants != nil && *r.Grants == g }) {
			t.Error("Grant has returned, and the grants are not offered")
		}
		far, err := p.Progress(t.Context())
		f.mu.Lock()
		if err != nil || far.Input < 1 || far.Loop < 2 || far.Verdicts != f.next[id] || f.gap != "" {
			t.Errorf("progress %+v, %v; the verdict topic is known to %d; %s", far, err, f.next[id], f.gap)
		}
		f.mu.Unlock()
		m.end(t)
		if err := p.Grant(t.Context(), &g); !errors.Is(err, protocol.ErrReleased) { // so nobody takes it for a failure
			t.Errorf("grants of one who owns the partition no more: %v", err)
		}
		if _, err := p.Progress(t.Context()); !errors.Is(err, protocol.ErrReleased) {
			t.Errorf("progress of one who owns the partition no more: %v", err)
		}
		r.begin(set, follow)
		eventually(t, "the next owner knows whom grants were given to", func() bool {
			f.mu.Lock()
			p := f.owners[id]
			f.mu.Unlock()
			return p != nil && p.LastGrants() != nil && p.LastGrants().Run == g.Run
		})
	})
}
