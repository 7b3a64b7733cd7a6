package fenced

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func TestAnEpochIsRenewedBeforeItsSequenceEnds(t *testing.T) {
	onEach(t, func(t *testing.T, c cluster) {
		cfg := c.config(t, nil)
		cfg.MaxSequence, cfg.BatchBytes = 100, 2<<10
		id := c.acquire(t, cfg)
		first := id.Epoch()
		w, other := id.NewWriter(c.topic, 0), id.NewWriter(c.topic, 1)
		start(t, w.Run)
		start(t, other.Run)
		ctx := patient(t)
		if err := other.Append(ctx, rec("a"), false, nil); err != nil {
			t.Fatal(err)
		}
		got := appendAll(t, w, 1000)
		if err := other.Append(ctx, rec("b"), false, nil); err != nil {
			t.Fatal(err)
		}
		if err := other.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if renewed := id.Epoch() - first; renewed < 10 {
			t.Fatalf("%d epochs for 1000 records", renewed)
		}
		log := c.log(t)
		got.check(t, log)
		since := 0
		for _, m := range log {
			if since++; IsFence([]byte(m.key)) {
				since = 1
			}
			if since > 100 {
				t.Fatalf("more than 100 records of one epoch up to offset %d", m.offset)
			}
		}
	})
}

func TestARefreshWaitsForTheBatchesInFlight(t *testing.T) {
	onEach(t, func(t *testing.T, c cluster) {
		cfg := c.config(t, nil)
		cfg.BatchBytes, cfg.RefreshEvery = 2<<10, 20*time.Millisecond
		id := c.acquire(t, cfg)
		w := id.NewWriter(c.topic, 0)
		start(t, w.Run)
		first := id.Epoch()
		stop := start(t, id.Run)
		got := appendAll(t, w, 3000)
		testrun.Eventually(t, "the identity was refreshed twice", func() bool { return id.Epoch() > first+1 })
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Fatal("the identity ended:", err)
		}
		got.check(t, c.log(t))
	})
}

// A batch that waits for a dead broker must not hold up the writers to all others.
func TestARefreshGivesWayToTheOtherWriters(t *testing.T) {
	c, ctx := fake(t), patient(t)
	id := c.acquire(t, c.config(t, nil))
	w := id.NewWriter(c.topic, 0)
	start(t, w.Run)
	if err := id.batches.Acquire(ctx, 1); err != nil { // the batch
		t.Fatal(err)
	}
	before := id.Epoch()
	stop := start(t, id.Refresh)
	for range 20 {
		if err := w.Append(ctx, rec("k"), true, nil); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if id.Epoch() != before {
			t.Fatal("it was refreshed with a batch in flight")
		}
	}
	id.batches.Release(1)
	testrun.Eventually(t, "the identity is refreshed", func() bool { return id.Epoch() == before+1 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestAnIdleWriterSendsHeartbeats(t *testing.T) {
	onEach(t, func(t *testing.T, c cluster) {
		cfg := c.config(t, nil)
		cfg.HeartbeatEvery = 200 * time.Millisecond
		id := c.acquire(t, cfg)
		w, unused := id.NewWriter(c.topic, 0), id.NewWriter(c.topic, 1)
		if _, err := w.Fence(patient(t)); err != nil {
			t.Fatal(err)
		}
		start(t, w.Run)
		start(t, unused.Run)
		end := func(p int32) int64 {
			n, err := id.cfg.Bulk.client.GetOffset(c.topic, p, sarama.OffsetNewest)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		testrun.Eventually(t, "two heartbeats", func() bool { return end(0) >= 3 })
		for _, m := range c.log(t) {
			if _, err := ParseFence([]byte(m.value)); !IsFence([]byte(m.key)) || err != nil {
				t.Fatalf("a heartbeat is %+v, %v", m, err)
			}
		}
		if end(1) != 0 {
			t.Fatal("a writer that was never used has sent something")
		}
	})
}

func TestAnOwnerThatWasSilentTooLongIsDead(t *testing.T) {
	onEach(t, func(t *testing.T, c cluster) {
		cfg := c.config(t, nil)
		cfg.HeartbeatEvery = time.Nanosecond
		w := c.acquire(t, cfg).NewWriter(c.topic, 0)
		if _, err := w.Fence(patient(t)); !errors.Is(err, ErrFenced) {
			t.Fatalf("it appended after 12 ns: %v", err)
		}
		if len(c.log(t)) != 0 {
			t.Fatal("it did append")
		}
	})
}
