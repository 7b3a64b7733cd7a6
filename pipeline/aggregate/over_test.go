package aggregate

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
)

const halfMinute = `
  rules:
    - {name: brief, match: {api: "*"}, limit: 2, per: 1m, window: tumbling, then: {block: 30s}}
`

// Behind a backlog a block of 30 seconds is found minutes late. It is counted, and not published; one
// that is still in force is.
func TestBlocksThatAreOverAreNotPublished(t *testing.T) {
	everyKafka(t, func(t *testing.T, r *rig) {
		r.createTime()
		set := compile(t, halfMinute)
		trusting := func(c *Config) { c.BrokerTime = brokerTimeCreate }
		m := r.start(set, trusting)
		r.ready(m)
		id := event.Partition([]byte("u1"), rigPartitions)
		ago := func(d time.Duration, uid string, n int) {
			at := time.Now().Add(-d)
			for range n {
				r.emitAt(at, id, `{"uid":"`+uid+`","api":"a"}`)
			}
		}
		var beside []string // in the same partition, whose broker's clock is known by then
		for _, uid := range uids(100) {
			if uid != "u1" && event.Partition([]byte(uid), rigPartitions) == id {
				beside = append(beside, uid)
			}
		}
		ago(0, "u1", 3)
		eventually(t, "a block is published", func() bool { return len(r.verdicts()) == 1 })
		ago(10*time.Minute, beside[0], 5)
		ago(0, beside[1], 3)
		all := func() bool {
			blocked, _ := r.blockedAndCleared()
			return blocked >= 2 && m.partition(id).begin(inputLane) == 11
		}
		eventually(t, "what came after the late ones is published", all)
		for _, v := range r.verdicts() {
			if v.Until < event.FromTime(time.Now().Add(-time.Minute)) {
				t.Errorf("a verdict that was over is published: %+v", v)
			}
		}
		if n := m.counterOf(t, "tallygate_verdicts_over_total"); n != 1 {
			t.Errorf("%v are said to have been over, want 1", n)
		}
	})
}
