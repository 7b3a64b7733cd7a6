package aggregate

import (
	"fmt"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
)

const aSecond = `
  rules:
    - {name: brief, match: {api: brief}, limit: 2, per: 1h, then: {block: 1s}}
    - {name: long, match: {api: long}, limit: 2, per: 1h, then: {block: 1h}}
`

// After a backlog, a block of one second is found when it has ended. It is counted but not
// published; one still in force is published. So verdicts are right from the first event after a
// start.
func TestBlocksThatAreOverAreNotPublished(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		set := compile(t, aSecond)
		m := r.begin(set)
		m.end(t)
		emit := func(api string) {
			for _, uid := range uids(10) {
				r.emit(hit(uid, api), hit(uid, api), hit(uid, api))
			}
		}
		emit("brief")
		emit("long")
		emitted := time.Now()
		eventually(t, "the short blocks would be over", func() bool { return time.Since(emitted) > 2*time.Second })
		m = r.begin(set)
		eventually(t, "those that are still in force are published", func() bool { return len(r.verdicts()) >= 10 })
		for _, uid := range uids(10) { // all is counted
			eventually(t, "the events of "+uid+" are counted", func() bool {
				x, err := m.Explain([]event.Dim{{Name: "uid", Value: uid}}, "", now())
				return err == nil && fmt.Sprint(x[0].Count, x[1].Count) == "3 3"
			})
		}
		for _, v := range r.verdicts() {
			if v.Rule != "long" {
				t.Errorf("a verdict that was over is published: %+v", v)
			}
		}
		if n := m.counterOf(t, "tallygate_verdicts_over_total"); n != 10 {
			t.Errorf("%v are said to have been over, want 10", n)
		}
		emit("brief")
		eventually(t, "the next ones are published in time", func() bool { return len(r.verdicts()) >= 20 })
	})
}
