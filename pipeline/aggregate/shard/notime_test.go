package shard

import (
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// A record whose producer left its time out is not from 1969: its events have their own times.
func TestARecordWithoutATimeHasNoBrokerTime(t *testing.T) {
	for stamp, want := range map[int64]event.Micros{-1: event.NoTime, 0: 0, 1_790_000_000_000: 1_790_000_000 * event.Second} {
		if got := BrokerTime(&record.Record{Timestamp: stamp}); got != want {
			t.Errorf("timestamp %d: %v, want %v", stamp, got, want)
		}
	}
}
