package aggregate

import (
	"fmt"
	"testing"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
)

const hourlyBucket = "\n  rules: [{name: r, match: {api: \"*\"}, window: bucket, limit: 60, per: 1h, then: {block: until-reset}}]"

// A waiting end is published when its key is quiet, before its owner stops, and by the next owner
// after a crash.
func TestAnEndThatWaitsIsPublished(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		set := compile(t, hourlyBucket)
		m := r.begin(set)
		last := func(uid string) (n int, until event.Micros) {
			for _, v := range r.verdicts() {
				if v.KeyText() == "uid="+uid {
					n, until = n+1, v.Until
				}
			}
			return n, until
		}
		flood := func(uid string) (until event.Micros) {
			var es []*event.Event
			for range 150 {
				es = append(es, hit(uid, "a"))
			}
			r.emit(es...)
			eventually(t, "the flood is counted", func() bool {
				x, err := m.Explain([]event.Dim{{Name: "uid", Value: uid}}, "", now())
				if err != nil || x[0].Verdict == nil {
					return false
				}
				until = x[0].Verdict.Until
				return x[0].Count > 119*event.One
			})
			return until
		}
		published := func(uid string, want event.Micros) { // its last events may have moved it on
			t.Helper()
			eventually(t, "the last end is published", func() bool { _, until := last(uid); return until >= want })
			if n, _ := last(uid); n > 5 {
				t.Errorf("%d verdicts of %s are published", n, uid)
			}
		}
		published("u1", flood("u1"))
		until := flood("u2")
		r.crash(m)
		published("u2", until)
		until = flood("u3")
		m.end(t)
		published("u3", until)
	})
}

// A waiting end is published at a stop, even if a checkpoint has just covered everything counted.
// The last checkpoint has then nothing to wait for, and the end was once left to the next owner.
func TestAnEndIsPublishedAtAStopBehindACheckpoint(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		set := compile(t, hourlyBucket)
		for n := range 5 {
			m := r.begin(set, func(c *Config) { c.CheckpointEvery = 10 * time.Millisecond })
			uid := fmt.Sprintf("u%d", n)
			key := []event.Dim{{Name: "uid", Value: uid}}
			var es []*event.Event
			for range 150 {
				es = append(es, hit(uid, "a"))
			}
			r.emit(es...)
			var want event.Micros
			eventually(t, "the flood is counted", func() bool {
				x, err := m.Explain(key, "", now())
				if err != nil || x[0].Verdict == nil {
					return false
				}
				want = x[0].Verdict.Until
				return x[0].Count > 119*event.One
			})
			durable := func() float64 {
				at, _ := m.sample(t, "tallygate_last_checkpoint_timestamp_seconds", "partition="+label(homeOf(key)))
				return at // 0 before the first
			}
			for range 2 { // the second checkpoint begins after the flood
				was := durable()
				eventually(t, "there is a checkpoint", func() bool { return durable() > was })
			}
			m.end(t)
			var until event.Micros
			for _, v := range r.verdicts() {
				if v.KeyText() == "uid="+uid {
					until = v.Until
				}
			}
			if until < want {
				t.Errorf("a block is published until %v, and is until %v", until, want)
			}
		}
	})
}
