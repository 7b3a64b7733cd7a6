package aggregate

import (
	"context"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// aSession is one that nobody consumes in.
type aSession struct {
	sarama.ConsumerGroupSession
	ctx context.Context
}

func (s aSession) Context() context.Context { return s.ctx }

// A panic in the midst of an event used to leave the partition locked: goka recovers from it,
// and the instance stood still, ready and without a word.
func TestPanicEndsTheInstance(t *testing.T) {
	a, err := New(Config{Brokers: []string{"127.0.0.1:1"}, Rules: compile(t, yearly)})
	if err != nil {
		t.Fatal(err)
	}
	a.found.Store(&topics.Layout{Partitions: 1})
	ctx, end := context.WithCancelCause(t.Context())
	p := newPartition(a, 0, &session{ConsumerGroupSession: aSession{ctx: ctx}, end: end})
	p.process(&bundle{batches: []kafkalog.Batch{kafkalog.Of(kafkalog.Record{Value: []byte(`{"uid":"u","api":"a"}`)})}}) // it has no rules yet
	if err := a.fatal(); err == nil || !strings.Contains(err.Error(), "panic") {
		t.Errorf("the instance's end: %v", err)
	}
	if p.ctx.Err() == nil || ctx.Err() == nil {
		t.Error("the partition, or the session, lives on")
	}
	if !p.mu.TryLock() {
		t.Error("the partition is still locked")
	}
}
