package emit_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/emit"
)

func newKgo(t testing.TB, c *kfake.Cluster) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// pump emits count events over many users, a few at a time so that there are many batches.
func pump(t *testing.T, e *emit.Emitter, count int) {
	t.Helper()
	for n := range count {
		if err := e.EmitWait(t.Context(), numbered(fmt.Sprintf("user-%d", n%53), n)); err != nil {
			t.Fatal(err)
		}
	}
}

func small(c *emit.Config) {
	c.MaxEvents = 500
	c.Linger = time.Millisecond
}

// Each of these answers every third produce request with an error; the last two after the
// records were appended, so that the retry puts them into the log twice.
func TestFaultsLeaveGaplessSequences(t *testing.T) {
	for _, fault := range []struct {
		err     *kerr.Error
		repeats bool
	}{
		{kerr.NotLeaderForPartition, false},
		{kerr.UnknownTopicOrPartition, false},
		{kerr.NotEnoughReplicas, false},
		{kerr.UnknownServerError, false},
		{kerr.TopicAuthorizationFailed, false},
		{kerr.NotEnoughReplicasAfterAppend, true},
		{kerr.RequestTimedOut, true},
	} {
		t.Run(fault.err.Message, func(t *testing.T) {
			c, p := fake(t, 4)
			var requests atomic.Int64
			c.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Err: fault.err, Count: 10,
				When: func(kmsg.Request) bool { return requests.Add(1)%3 == 2 },
			})
			e := start(t, p, small)
			pump(t, e, 3000)
			closeNow(t, e)
			events, repeats := consume(t, readLog(t, p))
			wantNumbered(t, events, 3000)
			if s := e.Stats(); s.Retries == 0 || s.Emitted != 3000 {
				t.Errorf("stats %+v", s)
			}
			if (repeats > 0) != fault.repeats {
				t.Errorf("%d repeats", repeats)
			}
		})
	}
}

func TestConnectionsThatDieLoseNothing(t *testing.T) {
	c, p := fake(t, 4)
	var requests atomic.Int64
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if n := requests.Add(1); n%4 == 2 && n < 40 {
			return nil, errors.New("the connection breaks"), true
		}
		return nil, nil, false
	})
	e := start(t, p, small)
	pump(t, e, 3000)
	closeNow(t, e)
	events, _ := consume(t, readLog(t, p))
	wantNumbered(t, events, 3000)
	if e.Stats().Retries == 0 {
		t.Error("no retries: the test did not test")
	}
}

// The broker sits on a request for longer than RequestTimeout, and works on it later.
func TestSlowAnswersAreSentAgain(t *testing.T) {
	c, p := fake(t, 2)
	var slow atomic.Bool
	release := make(chan struct{})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if slow.CompareAndSwap(false, true) {
			c.SleepControl(func() { <-release })
		}
		return nil, nil, false
	})
	e := start(t, p, func(c *emit.Config) { c.RequestTimeout = 50 * time.Millisecond })
	e.Emit(numbered("u1", 0))
	testrun.Eventually(t, "it is sent again", func() bool { return e.Stats().Retries > 0 })
	for n := 1; n < 500; n++ {
		e.Emit(numbered("u1", n))
	}
	close(release)
	closeNow(t, e)
	events, _ := consume(t, readLog(t, p))
	wantNumbered(t, events, 500)
}

func TestLeadersMove(t *testing.T) {
	c, p := fake(t, 6, kfake.NumBrokers(3))
	e := start(t, p, small)
	for n := range 3000 {
		if err := e.EmitWait(t.Context(), numbered(fmt.Sprintf("user-%d", n%53), n)); err != nil {
			t.Fatal(err)
		}
		if n%700 == 300 {
			c.ShufflePartitionLeaders()
		}
	}
	closeNow(t, e)
	events, _ := consume(t, readLog(t, p))
	wantNumbered(t, events, 3000)
}

// A broker whose limit is lower than ours: the batch is cut until its parts fit, and the one
// record that never will is dropped.
func TestABatchThatIsTooLargeIsDivided(t *testing.T) {
	c, p := fake(t, 1)
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		produce := req.(*kmsg.ProduceRequest)
		var batch kmsg.RecordBatch
		if err := batch.ReadFrom(produce.Topics[0].Partitions[0].Records); err != nil {
			return nil, err, true
		}
		records, err := kfake.BatchRecords(batch)
		if err != nil {
			return nil, err, true
		}
		huge := len(records) > 100
		for _, r := range records {
			huge = huge || len(r.Value) > 10_000
		}
		if !huge {
			return nil, nil, false
		}
		return answerProduce(produce, kerr.MessageTooLarge), nil, true
	})
	var drops []emit.Drop
	e := start(t, p, func(c *emit.Config) { c.OnDrop = func(d emit.Drop) { drops = append(drops, d) } })
	for n := range 2500 {
		e.Emit(numbered("u1", n))
		if n == 1200 {
			large := event.Event{API: "a.b", UID: "u1"}
			for i := range 20 {
				large.Attrs = append(large.Attrs, event.Attr{Name: fmt.Sprint(i), Value: event.StringValue(strings.Repeat("x", 1000))})
			}
			e.Emit(large)
		}
	}
	closeNow(t, e)
	var events []string
	for _, r := range readLog(t, p)[0] {
		events = append(events, r.value)
	}
	wantNumbered(t, events, 2500)
	if len(drops) != 1 || drops[0].Reason != emit.Refused || drops[0].Events != 1 || drops[0].Err == nil {
		t.Errorf("drops %+v", drops)
	}
	if s := e.Stats(); s.QueuedBytes != 0 || s.Queued != 0 {
		t.Errorf("stats %+v", s)
	}
}

// Kafka names the records that it refuses, and takes none of their batch.
func TestRefusedRecordsDoNotTakeTheOthersWithThem(t *testing.T) {
	c, p := fake(t, 1)
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		produce := req.(*kmsg.ProduceRequest)
		res := answerProduce(produce, kerr.InvalidRecord)
		bad := kmsg.NewProduceResponseTopicPartitionErrorRecord()
		bad.RelativeOffset = 3
		res.Topics[0].Partitions[0].ErrorRecords = append(res.Topics[0].Partitions[0].ErrorRecords, bad)
		return res, nil, true
	})
	emitted := make(chan struct{})
	c.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		<-emitted // so that all go in one batch
		return nil, nil, false
	})
	var drops []emit.Drop
	e := start(t, p, func(c *emit.Config) { c.OnDrop = func(d emit.Drop) { drops = append(drops, d) } })
	for n := range 10 {
		e.Emit(numbered("u1", n))
	}
	close(emitted)
	closeNow(t, e)
	log := readLog(t, p)[0]
	if len(log) != 9 || log[2].sequence != 3 || log[3].sequence != 5 {
		t.Errorf("log %+v", log)
	}
	if len(drops) != 1 || drops[0].Reason != emit.Refused || drops[0].Events != 1 {
		t.Errorf("drops %+v", drops)
	}
}

// answerProduce answers all of the request with one error.
func answerProduce(req *kmsg.ProduceRequest, err *kerr.Error) *kmsg.ProduceResponse {
	res := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range req.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			partition := kmsg.NewProduceResponseTopicPartition()
			partition.Partition = p.Partition
			partition.ErrorCode = err.Code
			topic.Partitions = append(topic.Partitions, partition)
		}
		res.Topics = append(res.Topics, topic)
	}
	return res
}
