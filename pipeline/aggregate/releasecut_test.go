package aggregate

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
)

// The session ends while a partition waits for the checkpoint that is due before the first event of
// another leader epoch. That checkpoint once took the changed states, and gave up. The one at the
// release found none, and declared everything durable. The next owner lacked what had been counted
// since the last complete checkpoint.
func TestAReleaseDuringACheckpointLosesNothing(t *testing.T) {
	t.Parallel()
	servers.Embedded(t)
	k, err := kfake.NewCluster(kfake.NumBrokers(2))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	r := newRig(t, k.ListenAddrs())
	once := func(c *Config) { c.BrokerTime, c.CheckpointEvery = "create", time.Hour }
	set := compile(t, yearly)
	m := r.begin(set, once)
	users := uids(24_000) // more states than a checkpoint copies at a time
	r.emitEach(users, 1)
	counted := func(m *member) (n int) {
		for _, uid := range users {
			if e, err := m.Explain([]event.Dim{{Name: "uid", Value: uid}}, "", now()); err == nil && e[0].Count == event.One {
				n++
			}
		}
		return n
	}
	eventually(t, "all are counted", func() bool { return counted(m) == len(users) })

	var refused atomic.Bool
	var refusals atomic.Int64 // of states
	refused.Store(true)
	k.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
		k.KeepControl()
		produce := req.(*kmsg.ProduceRequest)
		resp := produce.ResponseKind().(*kmsg.ProduceResponse)
		hit := false
		for _, t := range produce.Topics {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic, topic.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				part := kmsg.NewProduceResponseTopicPartition()
				part.Partition, part.ErrorCode = p.Partition, kerr.NotEnoughReplicas.Code
				topic.Partitions = append(topic.Partitions, part)
			}
			resp.Topics = append(resp.Topics, topic)
			hit = hit || t.Topic == r.names.Table
		}
		if hit = hit && refused.Load(); hit {
			refusals.Add(1)
		}
		return resp, nil, hit
	})
	id := event.Partition([]byte(users[0]), rigPartitions)
	own, before := m.ownership(id), refusals.Load()
	for node := range int32(2) {
		if err := k.MoveTopicPartition(r.names.Events, id, node); err != nil {
			t.Fatal(err)
		}
	}
	r.emit(hit(users[0], "other"))
	eventually(t, "a checkpoint waits for the changelog", func() bool { return refusals.Load() > before })
	m.stop()
	<-own.session.Context().Done()
	select {
	case <-own.stop: // released: its last checkpoint is due
	case <-time.After(time.Second): // the release waits for the checkpoint
	}
	refused.Store(false)
	m.end(t)

	m = r.begin(set, once)
	users = users[1:] // the first has one more event
	r.inStep(m)
	if n := counted(m); n != len(users) {
		t.Errorf("of %d users the next owner has counted %d", len(users), n)
	}
}
