package emit_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// An event that comes after a pause goes at once; what comes behind it waits for others, and Close sends it.
func TestLingerBeginsBehindTheFirstEvent(t *testing.T) {
	t.Parallel()
	c, p := fake(t, 1)
	var requests atomic.Int32
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		requests.Add(1)
		c.KeepControl()
		return nil, nil, false
	})
	e := start(t, p, func(c *emit.Config) { c.Linger = time.Hour })
	e.Emit(numbered("u1", 0))
	testrun.Eventually(t, "the first event is sent", func() bool { return requests.Load() == 1 && e.Stats().Emitted == 1 })
	for n := range 9 {
		e.Emit(numbered("u1", 1+n))
	}
	closeNow(t, e)
	events, _ := consume(t, readLog(t, p))
	wantNumbered(t, events, 10)
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests, want one for the first event and one for the others", n)
	}
}

// While a broker has all the requests it may have, partial batches wait for its answers, and nothing spins.
func TestLingerWaitsForAnswers(t *testing.T) {
	t.Parallel()
	c, p := fake(t, 8)
	release := make(chan struct{})
	var requests atomic.Int32
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if requests.Add(1) == 1 {
			<-release
			return answerProduce(req.(*kmsg.ProduceRequest), kerr.NotLeaderForPartition), nil, true
		}
		return nil, nil, false
	})
	e := start(t, p, nil)
	for n := range 200 {
		e.Emit(numbered("u"+string(rune('a'+n%26)), n))
	}
	close(release)
	closeNow(t, e)
	events, _ := consume(t, readLog(t, p))
	wantNumbered(t, events, 200)
}
