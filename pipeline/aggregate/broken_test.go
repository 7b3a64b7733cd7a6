package aggregate

import (
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// A corrupt batch is not counted, nor what follows it, and the log says where it is. Once it can be
// read, every event is counted once.
func TestABrokenBatchIsNotCounted(t *testing.T) {
	t.Parallel()
	servers.Embedded(t)
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	r := newRig(t, k.ListenAddrs())
	set := compile(t, yearly)
	log := &testrun.Output{}
	start := func() *member {
		return r.start(set, func(c *Config) {
			c.BrokerTime = "create"
			c.Logger = slog.New(slog.NewTextHandler(log, nil))
		})
	}
	m := start()
	r.ready(m)
	var events []*event.Event
	for i := range 100 {
		events = append(events, hit(fmt.Sprintf("u%d", i%10), "a"))
	}
	r.emit(events...)
	counted := func(n event.Decimal) func() bool {
		return func() bool {
			for i := range 10 {
				if r.count(fmt.Sprintf("u%d", i), "per-year", m) != n*event.One {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "all are counted", counted(10))
	var repaired atomic.Bool
	id := k.TopicInfo(r.names.Events).TopicID
	k.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
		k.KeepControl()
		fetch := req.(*kmsg.FetchRequest)
		if repaired.Load() || !slices.ContainsFunc(fetch.Topics, func(t kmsg.FetchRequestTopic) bool { return t.TopicID == id }) {
			return nil, nil, false
		}
		return broken(fetch, id), nil, true
	})
	eventually(t, "a broken batch arrives", func() bool { return log.Has("a batch is corrupt") })
	r.emit(events...)
	if counted(20)() {
		t.Error("events behind a broken batch are counted")
	}
	repaired.Store(true)
	eventually(t, "they are counted", counted(20))
	if log.Has("session ended") {
		t.Error("the session ended, and with it every partition of the instance")
	}
	for _, want := range []string{"partition failed", "a batch is corrupt", r.names.Events + "/"} {
		if !log.Has(want) {
			t.Errorf("the log does not say %q", want)
		}
	}
	m.end(t)
	m = start() // what is durable is the same
	r.ready(m)
	eventually(t, "it is still so", counted(20))
}

// broken answers a fetch with a batch whose checksum is wrong, for each partition of a topic. For
// others it answers with nothing.
func broken(req *kmsg.FetchRequest, id [16]byte) *kmsg.FetchResponse {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	for _, t := range req.Topics {
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			b := kmsg.RecordBatch{FirstOffset: p.FetchOffset, Magic: 2, NumRecords: 1, Records: []byte{0}}
			b.Length = int32(len(b.AppendTo(nil)) - 12)
			part := kmsg.NewFetchResponseTopicPartition()
			part.Partition, part.HighWatermark = p.Partition, p.FetchOffset
			if t.TopicID == id {
				part.HighWatermark, part.RecordBatches = p.FetchOffset+1, b.AppendTo(nil)
			}
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}
