package kafkalog

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// Whatever a broker refuses that may pass is asked for again, and nothing is left out or comes
// twice.
func TestWhatABrokerRefusesIsAskedForAgain(t *testing.T) {
	for _, code := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.ReplicaNotAvailable, kerr.UnknownTopicOrPartition,
		kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.KafkaStorageError, kerr.OffsetNotAvailable, kerr.UnknownTopicID,
		kerr.InconsistentTopicID, kerr.TopicAuthorizationFailed, kerr.UnknownServerError,
	} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			k := fake(t)
			c := client(t, k.ListenAddrs())
			topic := newTopic(t, c, 2, nil)
			var refused atomic.Int32
			k.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
				k.KeepControl()
				if n := refused.Add(1); n > 12 || n%2 == 0 {
					return nil, nil, false
				}
				return refuse(req.(*kmsg.FetchRequest), code.Code), nil, true
			})
			f := run(t, Config{Brokers: k.ListenAddrs()})
			var readers []*Reader
			for p := range int32(2) {
				readers = append(readers, f.Read(topic, [16]byte{}, p, 0))
			}
			for i := range 5 {
				for p := range int32(2) {
					produce(t, c, topic, p, values(10*i, 10)...)
				}
			}
			for _, r := range readers {
				inOrder(t, take(t, r, 50), 50)
				r.Close()
			}
		})
	}
}

// refuse answers every partition of a request with an error.
func refuse(req *kmsg.FetchRequest, code int16) *kmsg.FetchResponse {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	for _, t := range req.Topics {
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			part := kmsg.NewFetchResponseTopicPartition()
			part.Partition, part.ErrorCode = p.Partition, code
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// Answers that make no sense are no answers, but attempts that failed.
func TestAnswersThatMakeNoSense(t *testing.T) {
	for name, answer := range map[string]func(*kmsg.FetchRequest) *kmsg.FetchResponse{
		"nothing": func(req *kmsg.FetchRequest) *kmsg.FetchResponse { return req.ResponseKind().(*kmsg.FetchResponse) },
		"an error of the whole": func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
			resp := req.ResponseKind().(*kmsg.FetchResponse)
			resp.ErrorCode = kerr.FetchSessionIDNotFound.Code
			return resp
		},
		"what lies below": func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
			resp := refuse(req, 0)
			for i := range resp.Topics[0].Partitions {
				resp.Topics[0].Partitions[i].RecordBatches = made{first: -5, records: []kmsg.Record{value("old")}}.bytes(t)
			}
			return resp
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := fake(t)
			c := client(t, k.ListenAddrs())
			topic := newTopic(t, c, 1, nil)
			produce(t, c, topic, 0, values(0, 10)...)
			k.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
				return answer(req.(*kmsg.FetchRequest)), nil, true
			})
			var told atomic.Int32
			f := run(t, Config{Brokers: k.ListenAddrs(), OnError: func(string, int32, error) { told.Add(1) }})
			r := f.Read(topic, [16]byte{}, 0, 0)
			defer r.Close()
			inOrder(t, take(t, r, 10), 10)
			if told.Load() == 0 {
				t.Error("no attempt has failed")
			}
		})
	}
}

// A partition moves from broker to broker, and is read on.
func TestAPartitionMoves(t *testing.T) {
	k := fake(t, kfake.NumBrokers(3))
	c := client(t, k.ListenAddrs())
	topic := newTopic(t, c, 3, nil)
	f := run(t, Config{Brokers: k.ListenAddrs()[:1]})
	var readers []*Reader
	for p := range int32(3) {
		readers = append(readers, f.Read(topic, k.TopicInfo(topic).TopicID, p, 0))
	}
	const rounds = 6
	for round := range rounds {
		for p := range int32(3) {
			if err := k.MoveTopicPartition(topic, p, (p+int32(round))%3); err != nil {
				t.Fatal(err)
			}
			produce(t, c, topic, p, values(10*round, 10)...)
		}
	}
	for _, r := range readers {
		inOrder(t, take(t, r, 10*rounds), 10*rounds)
		r.Close()
	}
}

// A topic of the same name is another one: its records are not taken for the old one's, also by a
// broker that is asked for topics by their names.
func TestATopicIsCreatedAnew(t *testing.T) {
	old := kversion.Stable()
	old.SetMaxKeyVersion(int16(kmsg.Fetch), 12)
	for name, opts := range map[string][]kfake.Opt{"asked by id": nil, "asked by name": {kfake.MaxVersions(old)}} {
		t.Run(name, func(t *testing.T) {
			k := fake(t, opts...)
			c := client(t, k.ListenAddrs())
			topic := newTopic(t, c, 1, nil)
			was := k.TopicInfo(topic).TopicID
			produce(t, c, topic, 0, values(0, 10)...)
			f := run(t, Config{Brokers: k.ListenAddrs()})
			r := f.Read(topic, was, 0, 0)
			defer r.Close()
			inOrder(t, take(t, r, 10), 10)
			if err := k.DeleteTopic(topic); err != nil {
				t.Fatal(err)
			}
			testrun.Eventually(t, "the reader finds out", func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				return r.failures > 0
			})
			createTopic(t, c, topic, 1, nil)
			again := client(t, k.ListenAddrs()) // the other one knows the old topic
			produce(t, again, topic, 0, values(100, 20)...)
			if err := end(t, r); !errors.Is(err, ErrTopicChanged) {
				t.Error(err)
			}
			late := f.Read(topic, was, 0, 0)
			defer late.Close()
			if err := end(t, late); !errors.Is(err, ErrTopicChanged) {
				t.Error(err)
			}
		})
	}
}

// The network is cut and stands still, under load: every record comes once, in order.
func TestTheNetworkFails(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		c := client(t, brokers)
		topic := newTopic(t, c, 2, nil)
		network := servers.NewNetwork(t)
		f := run(t, Config{Brokers: brokers, PartitionBytes: 4_000, ReadTimeout: 500 * time.Millisecond,
			Dial: func(ctx context.Context, kind, address string) (net.Conn, error) {
				return network.Dial(ctx, kind, address)
			}})
		readers := []*Reader{f.Read(topic, [16]byte{}, 0, 0), f.Read(topic, [16]byte{}, 1, 0)}
		got := make([][]Record, 2)
		const rounds, each = 6, 200
		for round := range rounds {
			for p, r := range readers {
				produce(t, c, topic, int32(p), values(each*round, each)...)
				got[p] = append(got[p], take(t, r, each*round+each/2-len(got[p]))...)
			}
			if round%2 == 0 {
				network.Cut()
			} else {
				network.Stall()
			}
			testrun.Eventually(t, "the fetcher finds out", func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				return slices.ContainsFunc(f.readers, func(r *Reader) bool { return r.failures > 0 })
			})
			network.Heal()
		}
		for p, r := range readers {
			got[p] = append(got[p], take(t, r, rounds*each-len(got[p]))...)
			inOrder(t, got[p], rounds*each)
			r.Close()
		}
	})
}

// A broker is killed and started again, under load.
func TestABrokerIsKilled(t *testing.T) {
	k := servers.StartKafka(t, nil)
	c := client(t, []string{k.Addr()}, kgo.RecordRetries(1000))
	topic := newTopic(t, c, 2, nil)
	f := run(t, Config{Brokers: []string{k.Addr()}})
	readers := []*Reader{f.Read(topic, [16]byte{}, 0, 0), f.Read(topic, [16]byte{}, 1, 0)}
	got := make([][]Record, 2)
	for p, r := range readers {
		produce(t, c, topic, int32(p), values(0, 100)...)
		got[p] = take(t, r, 100)
	}
	k.Kill()
	k.Start()
	for p, r := range readers {
		produce(t, c, topic, int32(p), values(100, 100)...)
		got[p] = append(got[p], take(t, r, 100)...)
		inOrder(t, got[p], 200)
		r.Close()
	}
}
