package e2e

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
)

func kafkaFaults() []*fault {
	return []*fault{
		{kind: ofKafka, name: "broker killed and started, thrice", strike: brokerKilled},
		{kind: ofKafka, name: "broker stopped and started", strike: brokerStopped},
		{kind: ofKafka, name: "records of a foreign producer in wrong partitions", strike: foreignRecords},
		{kind: ofKafka, name: "changelog compacted during recoveries", alone: true, strike: compacted},
	}
}

func brokerKilled(s *stage, rnd *rand.Rand) (heal func()) {
	for range 3 {
		broker := s.broker(rnd)
		broker.Kill()
		pause(rnd, 0, 1500*time.Millisecond)
		broker.Start()
		pause(rnd, 500*time.Millisecond, 2*time.Second)
	}
	return func() {}
}

func (s *stage) broker(rnd *rand.Rand) *servers.KafkaProc { return s.kafka[rnd.IntN(len(s.kafka))] }

func brokerStopped(s *stage, rnd *rand.Rand) (heal func()) {
	broker := s.broker(rnd)
	broker.Stop()
	pause(rnd, 0, 5*time.Second)
	return broker.Start
}

// foreignRecords come from a producer that hashes by crc32, of uids of its own: the order of
// events that come from several partitions is undefined.
func foreignRecords(s *stage, rnd *rand.Rand) (heal func()) {
	g := s.traffic(rnd, max(s.plan.uids/20, 10), "f")
	g.n = s.foreign
	n := max(s.plan.events/100, 500)
	s.foreign += n
	producer := s.patient()
	defer producer.Close()
	var batch []*sarama.ProducerMessage
	for range n {
		e := g.next()
		p := event.Partition([]byte(e.UID), s.partitions)
		if rnd.IntN(2) == 0 {
			p = int32(crc32.ChecksumIEEE([]byte(e.UID)) % uint32(s.partitions))
		}
		batch = append(batch, &sarama.ProducerMessage{Topic: s.names.Events, Partition: p, Value: sarama.ByteEncoder(event.AppendJSON(nil, &e))})
		if len(batch) == 500 {
			s.putOver(producer, batch)
			batch = batch[:0]
		}
	}
	s.putOver(producer, batch)
	return func() {}
}

// compacted makes Kafka compact the changelog all the time, in tiny segments, while instances
// recover from it.
func compacted(s *stage, rnd *rand.Rand) (heal func()) {
	tiny := map[string]string{"segment.ms": "300", "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "100", "max.compaction.lag.ms": "300"}
	s.configure(s.names.Table, sarama.IncrementalAlterConfigsOperationSet, tiny)
	before := s.kept(s.names.Table)
	eventually(s.t, "the changelog is compacted", func() bool { return s.kept(s.names.Table) < 0.9*before })
	s.t.Logf("of the changelog's offsets, %.0f%% held a record before, and %.0f%% after", 100*before, 100*s.kept(s.names.Table))
	for range 3 {
		m := s.pick(rnd)
		m.Kill()
		m.Start()
		pause(rnd, 0, time.Second)
	}
	return func() {
		s.configure(s.names.Table, sarama.IncrementalAlterConfigsOperationDelete, tiny)
	}
}

func (s *stage) configure(topic string, op sarama.IncrementalAlterConfigsOperation, settings map[string]string) {
	s.t.Helper()
	entries := map[string]sarama.IncrementalAlterConfigsEntry{}
	for name, v := range settings {
		entries[name] = sarama.IncrementalAlterConfigsEntry{Operation: op, Value: &v}
	}
	if err := s.admin.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false); err != nil {
		s.t.Fatal(fmt.Errorf("configure %s: %w", topic, err))
	}
}

// kept is the share of a topic's offsets that still have a record.
func (s *stage) kept(topic string) float64 {
	s.t.Helper()
	records, offsets := 0, int64(0)
	for p, end := range s.ends(topic) {
		s.records(topic, int32(p), func(m *sarama.ConsumerMessage) {
			if m.Offset < end { // it grows meanwhile
				records++
			}
		})
		offsets += end
	}
	return float64(records) / float64(max(offsets, 1))
}
