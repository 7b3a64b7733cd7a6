package owner

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// A panic during an event once left the partition locked: goka recovers from it, and the instance
// stood still, ready and silent.
func TestPanicEndsTheInstance(t *testing.T) {
	env := loneEnv()
	var why error
	env.Fail = func(err error) error {
		why = fmt.Errorf("%w: %w", ErrFatal, err)
		return why
	}
	ctx, end := context.WithCancelCause(t.Context())
	p := New(env, 0, &Session{ConsumerGroupSession: aSession{ctx: ctx}, End: end})
	// The partition has no rules yet.
	p.Process(&Bundle{Batches: []kafkalog.Batch{kafkalog.Of(kafkalog.Record{Value: []byte(`{"uid":"u","api":"a"}`)})}})
	if why == nil || !strings.Contains(why.Error(), "panic") {
		t.Errorf("the instance's end: %v", why)
	}
	if p.Err() == nil || ctx.Err() == nil {
		t.Error("the partition, or the session, lives on")
	}
	seen := make(chan struct{})
	go p.View(func(*shard.Shard, *Rules) { close(seen) })
	select {
	case <-seen:
	case <-time.After(time.Minute):
		t.Error("the partition is still locked")
	}
}
