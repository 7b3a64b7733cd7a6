package e2e

import (
	"fmt"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// nearly is how close to its end a number of what is left may be there or not.
const nearly = 3 * event.Second

// compareLeft compares what the newest records say that keys have left with what the model's states do:
// it is a second old at most, whatever was killed.
func (m *model) compareLeft(r *rig) {
	r.t.Helper()
	var d *differences
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if d = m.leftDifferences(readVerdicts(r)); d.n == 0 || time.Now().After(end) {
			break
		}
	}
	if d.all == 0 && !m.forgets {
		d.add("nothing is left to anybody")
	}
	d.report(r.t)
}

func (m *model) leftDifferences(got published) *differences {
	d := differencesOf("what is left")
	now := event.FromTime(time.Now())
	for key, k := range m.states {
		for _, l := range m.stepper.LeftNow(k.raw, []byte(key)) {
			if l.Over() || l.Until <= now+nearly || k.mixed && !m.orderly(l.Limit.Name) {
				continue
			}
			d.compared()
			want := l.Verdict(k.dims)
			v, there := got.left[string(verdict.AppendRecordKey(nil, &want))]
			if says := saysLeft(&v); !there || says != saysLeft(&want) {
				d.add("%s under %s: %s, not %s", key, l.Limit.Name, says, saysLeft(&want))
			}
		}
	}
	return d
}

// saysLeft is what a record says is left, without its times: those of a key whose events come from several
// partitions depend on their order.
func saysLeft(v *verdict.Verdict) string { return fmt.Sprintf("%v of %v", v.Count, v.Limit) }
