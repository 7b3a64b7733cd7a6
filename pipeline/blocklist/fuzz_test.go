package blocklist

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// Whatever an entry of the stream holds, it is taken or passed over, and the feed moves on exactly
// when the entry follows.
func FuzzStreamEntry(f *testing.F) {
	f.Add("7-1", "", "a", "uid=42|r", `{"rule":"r","key":{"uid":"42"},"state":"block","mode":"enforce","action":"block","apis":["*"],"count":6,"limit":5,"since":"2026-11-21T10:00:00Z","until":"2099-11-21T10:05:00Z","seq":1}`, "")
	f.Add("7-1", "", "a", "", "", "1795272298355000")
	f.Add("7-2", "x", "", "\x00|", "{}", "-1")
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		f.Fatal(err)
	}
	r := newReader(FeedConfig{Shards: 1, Logger: rig.Quiet()})
	m := newMember(&Feed{}, table, 1)
	m.boxes[0].follows = true
	r.list = []*member{m}
	f.Fuzz(func(t *testing.T, id, predecessor, stamp, key, value, heartbeat string) {
		s := r.shards[0]
		s.place, s.complete = layout.Place{Epoch: 7}, true
		entry := redis.XMessage{ID: id, Values: map[string]any{"p": predecessor, "s": stamp, "k": key, "v": value, "h": heartbeat}}
		err := s.take(t.Context(), []redis.XMessage{entry})
		for m.boxes[0].next() {
		}
		if follows := (layout.Place{Epoch: 7}).Follows(id, predecessor); follows != (err == nil) || follows != (s.place == layout.Place{Epoch: 7, N: 1, Stamp: stamp}) && follows {
			t.Errorf("it follows: %v; error %v, now at %+v", follows, err, s.place)
		}
	})
}
