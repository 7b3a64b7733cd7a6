package aggregate

import (
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// A fuse that has blown stays so under the next owner, until the rules change.
func TestABlownFuseStaysBlown(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		set := compile(t, strings.Replace(yearly, "limit: 5", "limit: 1\n      fuse: 5%", 1))
		m := r.begin(set)
		var events []*event.Event
		for _, uid := range uids(400) {
			events = append(events, hit(uid, "a"))
		}
		r.emit(events...)
		eventually(t, "all fuses have blown", func() bool { return r.blown(m) == rigPartitions })
		m.end(t)
		m = r.begin(set)
		if got := r.blown(m); got != rigPartitions {
			t.Errorf("under the next owner %d fuses have blown, want %d", got, rigPartitions)
		}
		m.end(t)
		// One that does not blow again by the events that were not counted yet.
		m = r.begin(compile(t, strings.Replace(yearly, "limit: 5", "limit: 1\n      fuse: 100%", 1)))
		if got := r.blown(m); got != 0 {
			t.Errorf("by other rules %d fuses have blown, want none", got)
		}
	})
}

// blown counts the partitions with a blown fuse.
func (r *rig) blown(m *member) (n int) {
	for _, p := range m.owned() {
		p.View(func(s *shard.Shard, _ *owner.Rules) { n += len(s.Judge().BlownRules()) })
	}
	return n
}
