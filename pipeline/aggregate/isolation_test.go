package aggregate

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
)

// A partition that fails repeatedly is taken over repeatedly. The session continues, and all other
// partitions count normally.
func TestAFailingPartitionDisturbsNoOther(t *testing.T) {
	t.Parallel()
	servers.Embedded(t)
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	r := newRig(t, k.ListenAddrs())
	m := r.begin(compile(t, yearly), func(c *Config) { c.BrokerTime, c.SessionTimeout = "create", patient })
	m.mu.RLock()
	began := m.session
	m.mu.RUnlock()
	sick := event.Partition([]byte("u0"), rigPartitions)
	id := k.TopicInfo(r.names.Events).TopicID
	var repaired atomic.Bool
	k.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
		k.KeepControl()
		fetch := req.(*kmsg.FetchRequest)
		for _, t := range fetch.Topics {
			for _, p := range t.Partitions {
				if t.TopicID == id && p.Partition == sick && !repaired.Load() {
					return brokenAlone(fetch, id, sick), nil, true
				}
			}
		}
		return nil, nil, false
	})
	counts := map[string]int{}
	emit := func() {
		for _, uid := range uids(17) {
			counts[uid]++
			r.emit(hit(uid, "a"))
		}
	}
	counted := func(all bool) func() bool {
		return func() bool {
			for uid, n := range counts {
				if id := event.Partition([]byte(uid), rigPartitions); id == sick && !all {
					continue
				}
				if r.count(uid, "per-year", m) != event.Decimal(n)*event.One {
					return false
				}
			}
			return true
		}
	}
	failures := func() float64 {
		n, _ := m.sample(t, "tallygate_partition_failures_total", fmt.Sprintf("partition=%d", sick))
		return n
	}
	for n := range 3 {
		emit()
		eventually(t, "the others count", counted(false))
		eventually(t, "the partition fails", func() bool { return failures() > float64(n) })
	}
	if m.Ready() == nil && failures() == 0 {
		t.Error("ready, with a partition that is not counted")
	}
	for id := range int32(rigPartitions) {
		if n, _ := m.sample(t, "tallygate_takeovers_total", fmt.Sprintf("partition=%d", id)); id != sick && n != 1 {
			t.Errorf("partition %d was taken over %v times", id, n)
		}
	}
	repaired.Store(true)
	eventually(t, "the partition counts", counted(true))
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.session != began {
		t.Error("the session ended")
	}
}

// brokenAlone answers a fetch of one partition with a batch whose checksum is wrong, and of others
// with nothing.
func brokenAlone(req *kmsg.FetchRequest, id [16]byte, sick int32) *kmsg.FetchResponse {
	var alone kmsg.FetchRequest = *req
	alone.Topics = nil
	for _, t := range req.Topics {
		only := t
		only.Partitions = nil
		for _, p := range t.Partitions {
			if t.TopicID == id && p.Partition == sick {
				only.Partitions = append(only.Partitions, p)
			}
		}
		if len(only.Partitions) > 0 {
			alone.Topics = append(alone.Topics, only)
		}
	}
	return broken(&alone, id)
}
