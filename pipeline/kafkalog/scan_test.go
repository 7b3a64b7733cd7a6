package kafkalog

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What lies between two offsets is read, whatever batches it is in.
func TestScanReadsBetweenOffsets(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		c := client(t, brokers)
		topic := newTopic(t, c, 1, nil)
		var all []string
		for i := range 30 {
			all = append(all, fmt.Sprint(i))
		}
		for i := 0; i < 30; i += 10 {
			produce(t, c, topic, 0, all[i:i+10]...)
		}
		f := run(t, Config{Brokers: brokers})
		for _, span := range [][2]int64{{0, 30}, {0, 1}, {7, 7}, {7, 8}, {9, 11}, {10, 20}, {15, 25}, {29, 30}} {
			var got []string
			err := f.Scan(t.Context(), topic, [16]byte{}, 0, span[0], span[1], func(rec *Record) error {
				got = append(got, string(rec.Value))
				return nil
			})
			if want := all[span[0]:span[1]]; err != nil || !slices.Equal(got, want) {
				t.Errorf("from %d to %d: %v, %v", span[0], span[1], got, err)
			}
		}
		why := errors.New("enough")
		n := 0
		err := f.Scan(t.Context(), topic, [16]byte{}, 0, 0, 30, func(*Record) error {
			if n++; n == 3 {
				return why
			}
			return nil
		})
		if !errors.Is(err, why) || n != 3 {
			t.Errorf("%d records, and then %v", n, err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.readers) > 0 {
			t.Errorf("%d readers go on reading", len(f.readers))
		}
	})
}

// A scan whose first record was deleted says so: it neither waits nor begins later.
func TestScanOfWhatIsDeleted(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		c := client(t, brokers)
		topic := newTopic(t, c, 1, nil)
		produce(t, c, topic, 0, "a", "b", "c")
		deleteBelow(t, c, topic, 2)
		f := run(t, Config{Brokers: brokers})
		read := 0
		err := f.Scan(t.Context(), topic, [16]byte{}, 0, 0, 3, func(*Record) error { read++; return nil })
		if !errors.Is(err, ErrOutOfRange) || read > 0 {
			t.Errorf("%d records, and then %v", read, err)
		}
	})
}

func deleteBelow(t *testing.T, c *kgo.Client, topic string, offset int64) {
	t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 10_000
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: offset}}}}
	resp, err := req.RequestWith(t.Context(), c)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}
