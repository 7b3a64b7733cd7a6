package fenced

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// told collects what the dones of a writer were told.
type told struct {
	offsets []int64
	errs    []error
}

// appendAll appends n records, some of them urgent, and returns what they were told once all were.
func appendAll(t *testing.T, w *Writer, n int) *told {
	ctx := patient(t)
	got := &told{}
	for i := range n {
		r := Record{Key: fmt.Appendf(nil, "k%06d", i), Value: bytes.Repeat([]byte{byte(i)}, i%300)}
		err := w.Append(ctx, r, i%7 == 0, func(offset int64, _ time.Time, err error) {
			if len(got.offsets) != i {
				t.Errorf("record %d was told after %d others", i, len(got.offsets))
			}
			got.offsets, got.errs = append(got.offsets, offset), append(got.errs, err)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if len(got.offsets) != n {
		t.Fatalf("Flush returned after %d of %d dones", len(got.offsets), n)
	}
	return got
}

// check compares the log with what appendAll appended and was told.
func (got *told) check(t *testing.T, log []message) {
	records := data(log)
	if len(records) != len(got.offsets) {
		t.Fatalf("%d records in the log, want %d", len(records), len(got.offsets))
	}
	for i, m := range records {
		if got.errs[i] != nil {
			t.Fatalf("record %d was told %v", i, got.errs[i])
		}
		if m.key != fmt.Sprintf("k%06d", i) || len(m.value) != i%300 || m.offset != got.offsets[i] {
			t.Fatalf("record %d: %s with %d bytes at %d, told %d", i, m.key, len(m.value), m.offset, got.offsets[i])
		}
	}
}

func TestRecordsKeepTheirOrder(t *testing.T) {
	onEach(t, func(t *testing.T, c cluster) {
		cfg := c.config(t, nil)
		cfg.BatchBytes, cfg.QueueBytes = 4<<10, 16<<10
		w := c.acquire(t, cfg).NewWriter(c.topic, 0)
		start(t, w.Run)
		appendAll(t, w, 3000).check(t, c.log(t))
	})
}

func TestABatchSentAgainIsInTheLogOnce(t *testing.T) {
	for _, f := range []struct {
		name string
		what fault
	}{{"answers lost", lostAnswer}, {"requests lost", lostRequest}} {
		t.Run(f.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, c cluster) {
				seed := rand.Uint64()
				t.Log("seed", seed)
				random := rand.New(rand.NewPCG(seed, 0))
				d := &dialer{next: func() fault {
					if random.IntN(4) == 0 {
						return f.what
					}
					return none
				}}
				cfg := c.config(t, d)
				cfg.BatchBytes = 4 << 10
				w := c.acquire(t, cfg).NewWriter(c.topic, 0)
				start(t, w.Run)
				got := appendAll(t, w, 600)
				if d.faults() == 0 {
					t.Fatal("nothing was lost")
				}
				got.check(t, c.log(t))
				t.Log(d.faults(), "connections broken")
			})
		})
	}
}

// Many writers share connections: one that breaks must not break those of the others.
func TestABrokenConnectionIsReplacedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, c cluster) {
		var break1 atomic.Bool
		d := &dialer{next: func() fault {
			if break1.CompareAndSwap(true, false) {
				return lostAnswer
			}
			return none
		}}
		cfg := c.config(t, d)
		cfg.Bulk = cfg.Urgent
		var writers []*Writer
		for i := range 8 {
			one := cfg
			one.TransactionalID = fmt.Sprintf("%s-%d", c.topic, i)
			w := c.acquire(t, one).NewWriter(c.topic, int32(i%2))
			start(t, w.Run)
			writers = append(writers, w)
		}
		ctx, before := patient(t), d.opened()
		for range 5 {
			break1.Store(true)
			for i, w := range writers {
				if err := w.Append(ctx, rec(fmt.Sprint(i)), false, nil); err != nil {
					t.Fatal(err)
				}
			}
			for _, w := range writers {
				if err := w.Flush(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		if opened := d.opened() - before; d.faults() == 0 || opened > connections+d.faults() {
			t.Fatalf("%d connections opened, %d broke", opened, d.faults())
		}
	})
}

func TestARecordThatIsTooLargeIsTheEnd(t *testing.T) {
	onEach(t, func(t *testing.T, c cluster) {
		limit := "2000"
		c.topic += "-small"
		c.createTopic(t, map[string]*string{"max.message.bytes": &limit})
		w := c.acquire(t, c.config(t, nil)).NewWriter(c.topic, 0)
		stop := start(t, w.Run)
		ctx := patient(t)
		noise := make([]byte, 4000)
		for i := range noise {
			noise[i] = byte(rand.Uint32())
		}
		dones := make(chan error, 2)
		for _, v := range [][]byte{noise, nil} {
			if err := w.Append(ctx, Record{Key: []byte("k"), Value: v}, true, func(_ int64, _ time.Time, err error) { dones <- err }); err != nil {
				break // the first has killed the writer already
			}
		}
		err := <-dones
		for _, want := range []string{c.topic + "/0", "max.message.bytes", "4017"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("got %v, want it to say %q", err, want)
			}
		}
		if !errors.Is(err, sarama.ErrMessageSizeTooLarge) || errors.Is(err, ErrFenced) {
			t.Fatal(err)
		}
		if got := stop(); !errors.Is(got, sarama.ErrMessageSizeTooLarge) {
			t.Fatalf("Run returned %v", got)
		}
		if err := w.Append(ctx, rec("later"), false, nil); !errors.Is(err, sarama.ErrMessageSizeTooLarge) {
			t.Fatalf("Append to a dead writer: %v", err)
		}
	})
}

func TestATopicThatWasCreatedAnewIsTheEnd(t *testing.T) {
	c, ctx := kafka(t), patient(t)
	w := c.acquire(t, c.config(t, nil)).NewWriter(c.topic, 0)
	stop := start(t, w.Run)
	appendAll(t, w, 50)
	if err := c.admin(t).DeleteTopic(c.topic); err != nil {
		t.Fatal(err)
	}
	admin := c.admin(t)
	testrun.Eventually(t, "the topic can be created again", func() bool {
		return admin.CreateTopic(c.topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false) == nil
	})
	client := c.client(t, nil)
	testrun.Eventually(t, "the broker has the new one", func() bool { // for a moment it appends to the old one
		end, err := client.GetOffset(c.topic, 0, sarama.OffsetNewest)
		return err == nil && end == 0
	})
	err := w.Append(ctx, rec("late"), true, nil)
	if err == nil {
		err = w.Flush(ctx)
	}
	t.Log(err)
	if !errors.Is(err, errAnswer) {
		t.Fatalf("appended to another topic: %v", err)
	}
	if got := stop(); !errors.Is(got, errAnswer) {
		t.Fatal(got)
	}
}

func TestDonesCarryTheBrokersTime(t *testing.T) {
	c, ctx := kafka(t), patient(t)
	typ := "LogAppendTime"
	c.topic += "-stamped"
	c.createTopic(t, map[string]*string{"message.timestamp.type": &typ})
	lost := atomic.Bool{}
	lost.Store(true)
	d := &dialer{next: func() fault {
		if lost.CompareAndSwap(true, false) {
			return lostAnswer
		}
		return none
	}}
	w := c.acquire(t, c.config(t, d)).NewWriter(c.topic, 0)
	if _, err := w.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	lost.Store(true)
	start(t, w.Run)
	var at [3]time.Time
	for i := range at { // the first is a repetition
		if err := w.Append(ctx, Record{Key: []byte("k")}, true, func(_ int64, t time.Time, _ error) { at[i] = t }); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for i, m := range data(c.log(t)) {
		if !at[i].Equal(m.at) || !m.tombstone {
			t.Errorf("record %d was told %v, and is %+v", i, at[i], m)
		}
	}
}

func TestTheEndOfRunTellsAllThatWaits(t *testing.T) {
	c, ctx := fake(t), patient(t)
	d := &dialer{next: func() fault { return lostRequest }}
	cfg := c.config(t, d)
	cfg.QueueBytes = 1000
	w := c.acquire(t, cfg).NewWriter(c.topic, 0)
	stop := start(t, w.Run)
	var dones []int
	n := 0
	for ; ; n++ { // until the queue is full
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		err := w.Append(short, rec("k"), false, func(offset int64, _ time.Time, err error) {
			if offset != -1 || !errors.Is(err, context.Canceled) {
				t.Errorf("record %d was told %d, %v", n, offset, err)
			}
			dones = append(dones, len(dones))
		})
		cancel()
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			break
		}
	}
	if q := w.Queued(); q == 0 || q > 1000 {
		t.Fatalf("%d bytes are queued", q)
	}
	if err := w.Append(ctx, rec("urgent"), true, nil); err != nil {
		t.Fatal("no room for an urgent record:", err)
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if len(dones) != n || w.Queued() != 0 {
		t.Fatalf("%d of %d dones, %d bytes still queued", len(dones), n, w.Queued())
	}
	for _, err := range []error{w.Flush(ctx), w.WaitBelow(ctx, 0), w.Append(ctx, rec("k"), false, nil), w.Run(ctx)} {
		if err == nil {
			t.Fatal("a dead writer goes on")
		}
	}
}
