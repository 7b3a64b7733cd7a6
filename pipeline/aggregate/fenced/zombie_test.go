package fenced

import (
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

func TestAnOwnerIsRefusedAfterItsSuccessorsFence(t *testing.T) {
	onEach(t, func(t *testing.T, c cluster) {
		ctx := patient(t)
		zombie := c.acquire(t, c.config(t, nil))
		old := zombie.NewWriter(c.topic, 0)
		if _, err := old.Fence(ctx); err != nil {
			t.Fatal(err)
		}
		stop := start(t, old.Run)
		if err := old.Append(ctx, rec("before"), true, nil); err != nil {
			t.Fatal(err)
		}
		if err := old.Flush(ctx); err != nil {
			t.Fatal(err)
		}

		successor := c.acquire(t, c.config(t, nil))
		if successor.ProducerID() != zombie.ProducerID() || successor.Epoch() <= zombie.Epoch() {
			t.Fatalf("the successor got producer %d epoch %d after %d, %d", successor.ProducerID(), successor.Epoch(), zombie.ProducerID(), zombie.Epoch())
		}
		if c.real { // to acquire is not to fence yet; kfake is stricter than Kafka here
			_ = old.Append(ctx, rec("between"), true, nil)
			if err := old.Flush(ctx); err != nil {
				t.Fatal("refused before the fence record:", err)
			}
		}
		fresh := successor.NewWriter(c.topic, 0)
		fence, err := fresh.Fence(ctx)
		if err != nil {
			t.Fatal(err)
		}

		var got error
		told := make(chan struct{})
		if err := old.Append(ctx, rec("after"), true, func(_ int64, _ time.Time, err error) { got = err; close(told) }); err != nil {
			t.Fatal(err)
		}
		<-told
		if !errors.Is(got, ErrFenced) {
			t.Fatalf("the zombie's record got %v, want ErrFenced", got)
		}
		if err := stop(); !errors.Is(err, ErrFenced) {
			t.Fatalf("the zombie's Run returned %v", err)
		}
		if err := zombie.NewWriter(c.topic, 1).Run(ctx); !errors.Is(err, ErrFenced) {
			t.Fatalf("the zombie's other writer returned %v", err)
		}
		log := c.log(t)
		if last := log[len(log)-1]; last.offset != fence || !IsFence([]byte(last.key)) {
			t.Fatalf("behind the fence record at %d is %+v", fence, last)
		}
		f, err := ParseFence([]byte(log[len(log)-1].value))
		if err != nil || f.ProducerID != successor.ProducerID() || f.Epoch != successor.Epoch() || f.TransactionalID != c.topic+"-0" {
			t.Fatalf("the fence record says %+v, %v", f, err)
		}
	})
}

// The plain call that Acquire makes would give the zombie the next epoch.
func TestAZombiesRefreshDoesNotFenceItsSuccessor(t *testing.T) {
	c, ctx := kafka(t), patient(t)
	zombie := c.acquire(t, c.config(t, nil))
	if err := zombie.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	successor := c.acquire(t, c.config(t, nil))
	w := successor.NewWriter(c.topic, 0)
	if _, err := w.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := zombie.Refresh(ctx); !errors.Is(err, ErrFenced) {
			t.Fatalf("the zombie's refresh returned %v, want ErrFenced", err)
		}
	}
	if _, err := zombie.NewWriter(c.topic, 1).Fence(ctx); !errors.Is(err, ErrFenced) {
		t.Fatalf("the zombie, dead, fenced: %v", err)
	}
	if _, err := w.Fence(ctx); err != nil {
		t.Fatal("the successor appends no more:", err)
	}
	if err := successor.Refresh(ctx); err != nil {
		t.Fatal("the successor refreshes no more:", err)
	}
}

// A lost answer to a refresh: the coordinator has the next epoch, the owner asks with its old one.
func TestARefreshMayBeRepeated(t *testing.T) {
	c, ctx := kafka(t), patient(t)
	id := c.acquire(t, c.config(t, nil))
	before, _ := id.current()
	if _, err := id.askCoordinator(ctx, before); err != nil {
		t.Fatal(err)
	}
	if err := id.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	if id.ProducerID() != before.pid || id.Epoch() != before.epoch+1 {
		t.Fatalf("refreshed %+v to %d, %d", before, id.ProducerID(), id.Epoch())
	}
}

func TestFenceOldShutsAProducerIDOutForGood(t *testing.T) {
	onEach(t, func(t *testing.T, c cluster) {
		ctx := patient(t)
		// Another transactional id stands in for the one that the coordinator has forgotten.
		forgotten := c.config(t, nil)
		forgotten.TransactionalID += "-forgotten"
		zombie := c.acquire(t, forgotten)
		if c.real { // an epoch that no log knows yet: "the old epoch + 1" would not fence it
			if err := zombie.Refresh(ctx); err != nil {
				t.Fatal(err)
			}
		}
		w := zombie.NewWriter(c.topic, 0)
		if c.real {
			if _, err := w.Fence(ctx); err != nil {
				t.Fatal(err)
			}
		}
		cfg := c.config(t, nil)
		owner := c.acquire(t, cfg)
		own := owner.NewWriter(c.topic, 0)
		if _, err := own.Fence(ctx); err != nil {
			t.Fatal(err)
		}
		first, err := FenceOld(ctx, cfg, c.topic, 0, zombie.ProducerID())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Fence(ctx); !errors.Is(err, ErrFenced) {
			t.Fatalf("the old owner appended: %v", err)
		}
		// The takeover before crashed here.
		again, err := FenceOld(ctx, cfg, c.topic, 0, zombie.ProducerID())
		if err != nil || again != first {
			t.Fatalf("a second FenceOld returned %d, %v, want %d as the first", again, err, first)
		}
		if _, err := own.Fence(ctx); err != nil {
			t.Fatal("the owner itself was fenced:", err)
		}
	})
}

// What Kafka answers to repetitions, on which the offsets' exactness rests.
func TestARepetitionIsAnsweredWithItsFirstOffset(t *testing.T) {
	c, ctx := kafka(t), patient(t)
	id := c.acquire(t, c.config(t, nil))
	w := id.NewWriter(c.topic, 0)
	if _, err := w.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	batch := func() (*sarama.RecordBatch, ack) {
		b := w.encode([]entry{{rec: rec("a")}, {rec: rec("b")}, {rec: rec("c")}})
		b.Records = append([]*sarama.Record(nil), b.Records...)
		w.recs, w.ptrs = nil, nil
		a, err := w.attempt(ctx, b, id.cfg.Bulk)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.acknowledged(a, 3); err != nil {
			t.Fatal(err)
		}
		return b, a
	}
	first, a := batch()
	for range 4 {
		batch()
	}
	if again, err := w.attempt(ctx, first, id.cfg.Bulk); err != nil || again.offset != a.offset {
		t.Fatalf("one of the last five batches sent again: %+v, %v, want offset %d", again, err, a.offset)
	}
	batch()
	_, err := w.attempt(ctx, first, id.cfg.Bulk)
	t.Log("an older batch sent again:", err)
	if !errors.Is(err, errAnswer) || !final(err) {
		t.Fatalf("an older batch sent again: %v, want a refusal", err)
	}
	if n := len(data(c.log(t))); n != 6*3 {
		t.Fatalf("%d records in the log, want 18", n)
	}
}
