package fenced

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// forgetful is a broker of the test's own, whose coordinator forgets transactional ids after a
// second, and whose leaders forget silent producers after three.
func forgetful(t *testing.T) *servers.KafkaProc {
	if testing.Short() {
		t.Skip("starts a broker")
	}
	return servers.StartKafka(t, map[string]string{
		"transactional.id.expiration.ms":                              "1000",
		"transaction.remove.expired.transaction.cleanup.interval.ms":  "100",
		"producer.id.expiration.check.interval.ms":                    "100",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
		"log.cleaner.backoff.ms":                                      "100",
		"transaction.partition.verification.enable":                   "true",
	})
}

// What weeks of silence do, in seconds.
func TestAfterLongSilence(t *testing.T) {
	t.Parallel() // it mostly waits
	broker := forgetful(t)
	t.Run("another producer id", func(t *testing.T) { anotherProducerID(t, newCluster(t, []string{broker.Addr()}, true)) })
	t.Run("refresh", func(t *testing.T) { refreshOfAForgottenID(t, newCluster(t, []string{broker.Addr()}, true)) })
	t.Run("append", func(t *testing.T) { appendOfAForgottenProducer(t, newCluster(t, []string{broker.Addr()}, true)) })
}

// acquireAnother waits until the coordinator has forgotten the transactional id, and gives it
// another producer id.
func (c cluster) acquireAnother(t *testing.T, cfg Config, than *Identity) *Identity {
	t.Helper()
	var id *Identity
	testrun.Eventually(t, "the transactional id is forgotten", func() bool {
		time.Sleep(1500 * time.Millisecond) // each question keeps it for another second
		id = c.acquire(t, cfg)
		return id.ProducerID() != than.ProducerID()
	})
	return id
}

// The epochs of another id fence no owner: the successor shuts the old one out, and what was
// accepted until then lies below.
func anotherProducerID(t *testing.T, c cluster) {
	ctx := patient(t)
	zombie := c.acquire(t, c.config(t, nil))
	if err := zombie.Refresh(ctx); err != nil { // an epoch that no log knows
		t.Fatal(err)
	}
	asleep, elsewhere := zombie.NewWriter(c.topic, 0), zombie.NewWriter(c.topic, 1)
	if _, err := asleep.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	cfg := c.config(t, nil)
	owner := c.acquireAnother(t, cfg, zombie)
	own := owner.NewWriter(c.topic, 0)
	if _, err := own.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	late, err := asleep.Fence(ctx)
	if err != nil {
		t.Fatal("the owner's fence was enough, and the second one proves nothing:", err)
	}
	through, err := FenceOld(ctx, cfg, c.topic, 0, zombie.ProducerID())
	if err != nil || through <= late {
		t.Fatalf("the old id is shut out at %d, %v: not behind its last record at %d", through, err, late)
	}
	// Where it was never before.
	if _, err := FenceOld(ctx, cfg, c.topic, 1, zombie.ProducerID()); err != nil {
		t.Fatal(err)
	}
	for _, w := range []*Writer{asleep, elsewhere} {
		if _, err := w.Fence(ctx); !errors.Is(err, ErrFenced) {
			t.Fatalf("the zombie appended: %v", err)
		}
	}
	if err := c.sameTransactionalID(t, zombie).Refresh(ctx); !errors.Is(err, ErrFenced) {
		t.Fatalf("the zombie's refresh returned %v", err)
	}
	if _, err := own.Fence(ctx); err != nil {
		t.Fatal("the owner is refused:", err)
	}
}

// sameTransactionalID is an identity as another process has it that was not told yet.
func (c cluster) sameTransactionalID(t *testing.T, of *Identity) *Identity {
	of.mu.Lock()
	defer of.mu.Unlock()
	return newIdentity(c.config(t, nil).withDefaults(), of.stamp)
}

// An owner that could not refresh for a week finds out when it can: it takes over anew.
func refreshOfAForgottenID(t *testing.T, c cluster) {
	cfg := c.config(t, nil)
	id := c.acquire(t, cfg)
	testrun.Eventually(t, "the refresh is refused", func() bool {
		time.Sleep(1500 * time.Millisecond)
		err := id.Refresh(patient(t))
		if err != nil && !errors.Is(err, ErrFenced) {
			t.Fatal(err)
		}
		return err != nil
	})
	if next := c.acquire(t, cfg); next.ProducerID() == id.ProducerID() {
		t.Fatal("it was refused with the id that it has")
	}
}

// An owner that had no heartbeats is unknown to the leader; its sequence goes on all the same.
func appendOfAForgottenProducer(t *testing.T, c cluster) {
	c.expireProducers(t, sarama.IncrementalAlterConfigsOperationSet)
	id := c.acquire(t, c.config(t, nil))
	w := id.NewWriter(c.topic, 0)
	start(t, w.Run)
	ctx := patient(t)
	var told []int64
	for round := range 2 {
		for i := range 300 {
			if err := w.Append(ctx, rec(fmt.Sprint(round, i)), i%50 == 0, func(offset int64, _ time.Time, err error) {
				if err != nil {
					t.Error(err)
				}
				told = append(told, offset)
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			testrun.Eventually(t, "the leader has forgotten the producer", func() bool { return !slices.Contains(c.producers(t), id.ProducerID()) })
		}
	}
	records := data(c.log(t))
	if len(records) != 600 || len(told) != 600 {
		t.Fatalf("%d records, %d told", len(records), len(told))
	}
	for i, m := range records {
		if m.key != fmt.Sprint(i/300, i%300) || m.offset != told[i] {
			t.Fatalf("record %d is %s at %d, told %d", i, m.key, m.offset, told[i])
		}
	}
}

// Sequences stop short of 2^30, and would also do so of the greatest number there is.
func TestSequencesDoNotWrap(t *testing.T) {
	for _, tc := range []struct {
		name  string
		bound int32 // of the config
		first int32
	}{{"2^30", 0, 1<<30 - 700}, {"the greatest", math.MaxInt32, math.MaxInt32 - 700}} {
		t.Run(tc.name, func(t *testing.T) {
			c := kafka(t)
			cfg := c.config(t, nil)
			cfg.MaxSequence, cfg.BatchBytes = tc.bound, 4<<10
			id := c.acquire(t, cfg)
			first := id.Epoch()
			w := id.NewWriter(c.topic, 0)
			// A leader takes any first sequence of a producer that it doesn't know.
			w.stamp, _ = id.current()
			w.seq = tc.first
			start(t, w.Run)
			got := appendAll(t, w, 2000)
			got.check(t, c.log(t))
			if id.Epoch() != first+1 || w.seq > 2000 {
				t.Fatalf("epoch %d after %d, sequence %d", id.Epoch(), first, w.seq)
			}
		})
	}
}

// The daily refresh, every 20 ms, while records are being written and an owner that was
// replaced tries to do the same.
func TestRefreshUnderLoadBesideAZombie(t *testing.T) {
	c, ctx := kafka(t), patient(t)
	zombie := c.acquire(t, c.config(t, nil))
	cfg := c.config(t, nil)
	cfg.BatchBytes, cfg.RefreshEvery = 2<<10, 20*time.Millisecond
	id := c.acquire(t, cfg)
	first := id.Epoch()
	w, other := id.NewWriter(c.topic, 0), id.NewWriter(c.topic, 1)
	start(t, w.Run)
	start(t, other.Run)
	stop := start(t, id.Run)
	var refused atomic.Int64
	stopZombie := start(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			if err := c.sameTransactionalID(t, zombie).Refresh(ctx); err == nil {
				return errors.New("a zombie has refreshed its epoch")
			} else if errors.Is(err, ErrFenced) {
				refused.Add(1)
			}
			if !retry.Sleep(ctx, 5*time.Millisecond) {
				break
			}
		}
		return nil
	})
	told := 0
	for round := 0; round < 20 || refused.Load() < 5 || id.Epoch() < first+5; round++ {
		for range 200 {
			if err := other.Append(ctx, rec("o"), false, func(_ int64, _ time.Time, err error) {
				if err == nil {
					told++
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := other.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	appendAll(t, w, 3000).check(t, c.log(t))
	if err := stopZombie(); err != nil {
		t.Fatal(err)
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatal("the identity ended:", err)
	}
	t.Logf("%d records, %d epochs, %d refusals", told+3000, id.Epoch()-first, refused.Load())
}

// A writer that first appends when the last refresh is hours ago has nothing that a broker
// could have forgotten: that its owner lives the other writers have heard.
func TestALateWriterIsNoZombie(t *testing.T) {
	onEach(t, func(t *testing.T, c cluster) {
		cfg := c.config(t, nil)
		cfg.HeartbeatEvery = 200 * time.Millisecond
		id := c.acquire(t, cfg)
		w, late := id.NewWriter(c.topic, 0), id.NewWriter(c.topic, 1)
		if _, err := w.Fence(patient(t)); err != nil {
			t.Fatal(err)
		}
		start(t, w.Run)
		testrun.Eventually(t, "the refresh is long ago", func() bool { return elapsed(id.since) > silentBeats*cfg.HeartbeatEvery })
		if _, err := late.Fence(patient(t)); err != nil {
			t.Fatal(err)
		}
	})
}

// After 32,000 takeovers and refreshes, a century of them, the epochs of a producer id are used
// up: the coordinator gives another id, and the owner takes over anew.
func TestEpochsThatAreUsedUp(t *testing.T) {
	t.Parallel() // it mostly waits
	c, ctx := kafka(t), patient(t)
	cfg := c.config(t, nil)
	id := c.acquire(t, cfg)
	var err error
	for err == nil {
		err = id.Refresh(ctx)
	}
	if last := id.Epoch(); !errors.Is(err, ErrFenced) || last < math.MaxInt16-2 || last >= shutOut {
		t.Fatalf("at epoch %d: %v", last, err)
	}
	asleep := c.sameTransactionalID(t, id).NewWriter(c.topic, 0) // at the last epoch there is
	if _, err := asleep.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	next := c.acquire(t, cfg)
	if next.ProducerID() == id.ProducerID() {
		t.Fatalf("after epoch %d comes %d of the same id", id.Epoch(), next.Epoch())
	}
	w := next.NewWriter(c.topic, 0)
	if _, err := w.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := FenceOld(ctx, cfg, c.topic, 0, id.ProducerID()); err != nil {
		t.Fatal(err)
	}
	if _, err := asleep.Fence(ctx); !errors.Is(err, ErrFenced) {
		t.Fatalf("the old id appended: %v", err)
	}
	start(t, w.Run)
	appendAll(t, w, 200)
}
