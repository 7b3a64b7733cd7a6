package kafkalog

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

// holdingTest reads so many partitions of large batches, within a bound.
func holdingTest(t *testing.T, brokers []string, partitions int32, bound int64, opts ...kgo.Opt) (readers []*Reader, held *atomic.Int64, batch int) {
	c := client(t, brokers, opts...)
	topic := newTopic(t, c, partitions, nil)
	const batches, records, size = 20, 10, 2_000
	for p := range partitions {
		for n := range batches {
			list := values(n*records, records)
			for i := range list {
				list[i] += string(make([]byte, size))
			}
			produce(t, c, topic, p, list...)
		}
	}
	held = &atomic.Int64{}
	f := run(t, Config{Brokers: brokers, HoldBytes: bound, MaxWait: 10 * time.Millisecond, OnHold: func(n int64) { held.Add(n) }})
	for p := range partitions {
		r := f.Read(topic, [16]byte{}, p, 0)
		r.Keep()
		t.Cleanup(r.Close)
		readers = append(readers, r)
	}
	return readers, held, records * size
}

// What all readers hold stays within the bound and a batch, though nobody reads; all of it can be read then, and
// nothing is held in the end.
func TestReadersHoldNoMoreThanTheirBound(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		const bound = 400_000
		readers, held, batch := holdingTest(t, brokers, 4, bound, kgo.ProducerBatchCompression(kgo.NoCompression()))
		for i, r := range readers { // one after the other: the last ones wait with what they hold
			var got, want []int64
			for n := int64(0); n < 200; {
				c, err := r.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if most := int64(bound + 2*batch); held.Load() > most {
					t.Fatalf("%d bytes are held, of %d", held.Load(), most)
				}
				for {
					b, ok, err := c.Next()
					if err != nil {
						t.Fatal(err)
					}
					if !ok {
						break
					}
					var rec Record
					for ok, err = b.Next(&rec); ok; ok, err = b.Next(&rec) {
						got, want = append(got, rec.Offset), append(want, n)
						n++
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				r.Release(c.Held())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("partition %d: %s", i, diff)
			}
		}
		for _, r := range readers {
			r.Close()
		}
		if n := held.Load(); n != 0 {
			t.Errorf("%d bytes are held by readers that are closed", n)
		}
	})
}

// A part of a response is copied, if it would keep the whole.
func TestASmallPartDoesNotKeepItsResponse(t *testing.T) {
	whole := make([]byte, 1000)
	small, held := apart(whole[:100:100], len(whole))
	if &small[0] == &whole[0] || held != 100 {
		t.Errorf("a tenth is counted as %d", held)
	}
	most, held := apart(whole[:900:900], len(whole))
	if &most[0] != &whole[0] || held != 1000 {
		t.Errorf("nine tenths are counted as %d", held)
	}
}

// A batch's memory is known before it is there.
func TestABatchTakesNoMoreThanItsChunkSays(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		readers, _, _ := holdingTest(t, brokers, 1, 0)
		c, err := readers[0].Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for c.Rest() > 0 {
			most := c.Most()
			b, _, err := c.Next()
			if err != nil || b.Size() > most {
				t.Errorf("it takes %d bytes, and should at most %d: %v", b.Size(), most, err)
			}
		}
		if c.Most() != 0 {
			t.Errorf("nothing is left, and takes %d bytes", c.Most())
		}
	})
}
