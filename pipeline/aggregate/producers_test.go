package aggregate

import (
	"fmt"
	"testing"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
)

func numbered(partition int32, instance string, from int32, seq uint64, uid string) *sarama.ProducerMessage {
	headers := []sarama.RecordHeader{
		{Key: []byte(event.HeaderInstance), Value: []byte(instance)},
		{Key: []byte(event.HeaderSequence), Value: event.AppendSequence(nil, seq)},
	}
	if from >= 0 {
		headers = append(headers, sarama.RecordHeader{Key: []byte(event.HeaderPartition), Value: event.AppendPartition(nil, from)})
	}
	return &sarama.ProducerMessage{Partition: partition, Value: sarama.ByteEncoder(event.AppendJSON(nil, hit(uid, "a"))), Headers: headers}
}

// Thousands of emitters with long names, all of whose records arrive twice, the second time under
// another owner.
func TestThousandsOfEmittersWithLongNames(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		const emitters = 6000
		set := compile(t, yearlyHigh)
		m := r.begin(set)
		send := func(seq uint64) {
			var msgs []*sarama.ProducerMessage
			for i := range emitters {
				msg := numbered(event.Partition([]byte("u1"), rigPartitions), fmt.Sprintf("%0800d", i), -1, seq, "u1")
				msg.Topic = r.names.Events
				if msgs = append(msgs, msg); len(msgs) == 500 {
					r.sendAll(msgs)
					msgs = nil
				}
			}
		}
		counted := func(n int) func() bool {
			return func() bool { return r.count("u1", "per-year", m) == event.Decimal(n)*event.One }
		}
		send(1)
		eventually(t, "all are counted", counted(emitters))
		m.end(t)
		m = r.begin(set)
		send(1)
		send(2)
		eventually(t, "the second ones are counted once", counted(2*emitters))
		eventually(t, "repeats are said", func() bool { return m.counterOf(t, "tallygate_events_total", "producer_repeat") == emitters })
	})
}

const yearlyHigh = `
  rules:
    - {name: per-year, match: {api: "*"}, limit: 1000000, per: year, window: calendar, then: {block: until-reset}}
`

// A mirror merges two partitions of an emitter into one: none of its records is taken for a repeat,
// and repeats still are.
func TestPartitionsMergedByAMirror(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, yearlyHigh))
		id := event.Partition([]byte("u1"), rigPartitions)
		var msgs []*sarama.ProducerMessage
		for seq := range uint64(50) {
			for from := range int32(3) {
				for range 2 { // each a second time
					msg := numbered(id, "emitter", 7*from, seq+1, "u1")
					msg.Topic = r.names.Events
					msgs = append(msgs, msg)
				}
			}
		}
		r.sendAll(msgs)
		eventually(t, "each counts once", func() bool { return r.count("u1", "per-year", m) == 150*event.One })
		eventually(t, "its repeat does not", func() bool { return m.counterOf(t, "tallygate_events_total", "producer_repeat") == 150 })
	})
}
