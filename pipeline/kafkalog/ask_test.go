package kafkalog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// A broker that gives no answer is asked for less at once, and for more again when it answers.
func TestLessIsAskedForAfterARequestThatFailed(t *testing.T) {
	k := fake(t)
	c := client(t, k.ListenAddrs())
	topic := newTopic(t, c, 1, nil)
	const most = 1 << 20
	var mu sync.Mutex
	var sizes []int32 // as they change

	k.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
		k.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		if size := req.(*kmsg.FetchRequest).Topics[0].Partitions[0].PartitionMaxBytes; len(sizes) == 0 || sizes[len(sizes)-1] != size {
			sizes = append(sizes, size)
		}
		if len(sizes) == 1 {
			return nil, errors.New("too much"), true
		}
		return nil, nil, false
	})
	r := run(t, Config{Brokers: k.ListenAddrs(), PartitionBytes: most}).Read(topic, [16]byte{}, 0, 0)
	defer r.Close()
	for i := range 4 {
		produce(t, c, topic, 0, values(i, 1)...)
		take(t, r, 1)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []int32{most, most / 4, most / 2, most}; !slices.Equal(sizes, want[:len(sizes)]) || len(sizes) < 3 {
		t.Errorf("asked for %d bytes, want %d", sizes, want)
	}
}

// While nobody says whether the log was cut, nothing is read.
func TestNothingIsReadBeforeTheLeaderSaysWhetherTheLogWasCut(t *testing.T) {
	k := fake(t)
	c := client(t, k.ListenAddrs())
	topic := newTopic(t, c, 1, nil)
	produce(t, c, topic, 0, values(0, 10)...)
	var asked atomic.Int32
	k.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
		k.KeepControl()
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		part := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		part.EndOffset = 3 // it was read up to 5
		if asked.Add(1) < 3 {
			part.ErrorCode, part.EndOffset = kerr.UnknownServerError.Code, -1
		}
		resp.Topics = []kmsg.OffsetForLeaderEpochResponseTopic{{Topic: topic, Partitions: []kmsg.OffsetForLeaderEpochResponseTopicPartition{part}}}
		return resp, nil, true
	})
	r := run(t, Config{Brokers: k.ListenAddrs()}).ReadBehind(topic, [16]byte{}, 0, 5, 0)
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if c, err := r.Next(ctx); !errors.Is(err, ErrCut) {
		t.Errorf("%d bytes, %v", len(c.raw), err)
	}
}

// A leader is asked once, however often it is looked for.
func TestALeaderIsAskedOnceWhetherTheLogWasCut(t *testing.T) {
	k := fake(t)
	c := client(t, k.ListenAddrs())
	topic := newTopic(t, c, 1, nil)
	produce(t, c, topic, 0, values(0, 10)...)
	var asked, fetched atomic.Int32
	k.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
		k.KeepControl()
		asked.Add(1)
		return nil, nil, false
	})
	k.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
		k.KeepControl()
		if fetched.Add(1) > 2 {
			return nil, nil, false
		}
		return refuse(req.(*kmsg.FetchRequest), kerr.NotLeaderForPartition.Code), nil, true
	})
	r := run(t, Config{Brokers: k.ListenAddrs()}).ReadBehind(topic, [16]byte{}, 0, 0, 0)
	defer r.Close()
	take(t, r, 10)
	if asked.Load() != 1 {
		t.Errorf("asked %d times", asked.Load())
	}
}

// Where the leader has changed, it is asked whether it has what was read from the one before.
func TestANewLeaderIsAskedWhetherTheLogWasCut(t *testing.T) {
	k := fake(t, kfake.NumBrokers(2))
	c := client(t, k.ListenAddrs())
	topic := newTopic(t, c, 1, nil)
	produce(t, c, topic, 0, values(0, 10)...)
	k.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		part := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		part.EndOffset = 3
		resp.Topics = []kmsg.OffsetForLeaderEpochResponseTopic{{Topic: topic, Partitions: []kmsg.OffsetForLeaderEpochResponseTopicPartition{part}}}
		return resp, nil, true
	})
	r := run(t, Config{Brokers: k.ListenAddrs(), MaxWait: 10 * time.Millisecond}).Read(topic, [16]byte{}, 0, 0)
	defer r.Close()
	inOrder(t, take(t, r, 10), 10)
	if err := k.MoveTopicPartition(topic, 0, 1-k.LeaderFor(topic, 0)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := r.Next(ctx); !errors.Is(err, ErrCut) {
		t.Error(err)
	}
}

// Brokers before Kafka 0.10.1 cut off a batch that is larger than what is asked for: more is asked
// for, and never more than the largest batch may have.
func TestABatchThatTheBrokerCutsOff(t *testing.T) {
	wire := made{records: []kmsg.Record{{Value: make([]byte, 50_000)}}}.bytes(t)
	for name, tt := range map[string]struct {
		largest int32
		fails   bool
	}{"that fits": {60_000, false}, "that does not": {40_000, true}} {
		t.Run(name, func(t *testing.T) {
			k := fake(t)
			topic := newTopic(t, client(t, k.ListenAddrs()), 1, nil)
			k.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
				k.KeepControl()
				fetch := req.(*kmsg.FetchRequest)
				p := fetch.Topics[0].Partitions[0]
				if p.PartitionMaxBytes > tt.largest {
					t.Errorf("%d bytes are asked for", p.PartitionMaxBytes)
				}
				resp := refuse(fetch, 0)
				resp.Topics[0].Partitions[0].HighWatermark = 1
				if p.FetchOffset == 0 {
					resp.Topics[0].Partitions[0].RecordBatches = wire[:min(len(wire), int(p.PartitionMaxBytes))]
				}
				return resp, nil, true
			})
			r := run(t, Config{Brokers: k.ListenAddrs(), PartitionBytes: 1000, LargestBatch: tt.largest}).Read(topic, [16]byte{}, 0, 0)
			defer r.Close()
			if !tt.fails {
				take(t, r, 1)
			} else if err := end(t, r); err == nil || !strings.Contains(err.Error(), "at most 40000 are read") {
				t.Error(err)
			}
		})
	}
}

// A search for leaders asks for the readers' topics, each once, and not for all that there are.
func TestLeadersAreAskedForByTopic(t *testing.T) {
	k := fake(t)
	c := client(t, k.ListenAddrs())
	topic := newTopic(t, c, 2, nil)
	produce(t, c, topic, 0, "a")
	produce(t, c, topic, 1, "b")
	var named atomic.Int32
	k.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
		k.KeepControl()
		if topics := req.(*kmsg.MetadataRequest).Topics; len(topics) > 1 {
			t.Errorf("%d topics are asked for", len(topics))
		} else if len(topics) == 1 {
			named.Add(1)
		}
		return nil, nil, false
	})
	f := run(t, Config{Brokers: k.ListenAddrs()})
	for p := range int32(2) {
		r := f.Read(topic, [16]byte{}, p, 0)
		defer r.Close()
		take(t, r, 1)
	}
	if named.Load() == 0 {
		t.Error("no request names the topic")
	}
}

// A reader that begins while the search for leaders looks elsewhere is found by the next search; a
// broker that is given one while it is asked for others, asks for it next.
func TestASearchForLeadersIsRemembered(t *testing.T) {
	f, err := New(Config{Brokers: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	r := f.Read("topic", [16]byte{}, 0, 0)
	select {
	case <-f.lost:
	default:
		t.Error("nobody will look for its leader")
	}
	r.leader = 7
	nodes := f.assign([]*Reader{r}, nil)
	if len(nodes) != 1 {
		t.Fatal(nodes)
	}
	select {
	case <-nodes[0].wake:
	default:
		t.Error("nobody will ask its leader")
	}
}

// Partitions of one topic are asked for together; a topic of the same name and another id is
// another one.
func TestARequestNamesATopicOnce(t *testing.T) {
	req := kmsg.NewPtrFetchRequest()
	for _, r := range []*Reader{{topic: "a"}, {topic: "b"}, {topic: "a"}, {topic: "a", id: [16]byte{1}}, {topic: "a", id: [16]byte{1}}} {
		asked := requestTopic(req, r)
		if asked.Topic != r.topic || asked.TopicID != r.id {
			t.Errorf("%s %x is asked for as %s %x", r.topic, r.id, asked.Topic, asked.TopicID)
		}
	}
	if len(req.Topics) != 3 {
		t.Errorf("a request names %d topics, not 3", len(req.Topics))
	}
}

// A partition without new records is no trouble: the broker waits for some, and its answer says
// where the partition ends.
func TestAnAnswerWithoutRecordsIsAnAnswer(t *testing.T) {
	k := fake(t)
	topic := newTopic(t, client(t, k.ListenAddrs()), 1, nil)
	k.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
		if wait := req.(*kmsg.FetchRequest).MaxWaitMillis; wait != 20 {
			t.Errorf("the broker may wait for %d ms", wait)
		}
		return nil, nil, false
	})
	f := run(t, Config{Brokers: k.ListenAddrs(), MaxWait: 20 * time.Millisecond,
		OnError: func(topic string, partition int32, err error) { t.Errorf("%s/%d: %v", topic, partition, err) }})
	r := f.Read(topic, [16]byte{}, 0, 0)
	defer r.Close()
	testrun.Eventually(t, "the end is known, or a failure", func() bool { return r.Progress().End == 0 || t.Failed() })
}
