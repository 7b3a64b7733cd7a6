package aggregate

import (
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/event"
)

// createTime makes the event topic use the producers' times, however far in the future they are.
func (r *rig) createTime() {
	r.t.Helper()
	admin, err := sarama.NewClusterAdminFromClient(r.client)
	if err != nil {
		r.t.Fatal(err)
	}
	kind, ahead := "CreateTime", "9223372036854775807"
	detail := &sarama.TopicDetail{NumPartitions: rigPartitions, ReplicationFactor: 1, ConfigEntries: map[string]*string{
		"message.timestamp.type": &kind, "message.timestamp.after.max.ms": &ahead,
	}}
	if err := admin.CreateTopic(r.names.Events, detail, false); err != nil {
		r.t.Fatal(err)
	}
}

// emitAt sends an event with the producer's record time.
func (r *rig) emitAt(at time.Time, partition int32, value string) {
	r.t.Helper()
	r.sendAll([]*sarama.ProducerMessage{{Topic: r.names.Events, Partition: partition, Value: sarama.StringEncoder(value), Timestamp: at}})
}

func (m *member) sweepAll(t *testing.T) {
	t.Helper()
	for _, p := range m.owned() {
		if err := p.SweepAll(t.Context()); err != nil {
			t.Fatal(errors.Join(err, p.Err()))
		}
	}
}

// One record from the year 2100 once ended the daily counts of every key in its partition, and
// again after a restart.
func TestARecordFromTheFutureEvictsNoKey(t *testing.T) {
	onKafka(t, func(t *testing.T, r *rig) {
		r.createTime()
		set := compile(t, hourAndDay)
		trusting := func(c *Config) { c.BrokerTime = brokerTimeCreate }
		m := r.begin(set, trusting)
		r.emit(hit("u1", "a"), hit("u1", "a"), hit("u1", "a"))
		eventually(t, "three are counted", func() bool { return r.count("u1", "hourly", m) == 3*event.One })
		id := event.Partition([]byte("u1"), rigPartitions)
		r.emitAt(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), id, `{"uid":"prophet","api":"a"}`)
		for range 2 {
			eventually(t, "the future is counted", func() bool { return m.partition(id).Standing().Next == 4 })
			m.sweepAll(t)
			if n := r.count("u1", "hourly", m); n != 3*event.One {
				t.Errorf("u1 has counted %v, want 3", n)
			}
			m.end(t)
			m = r.begin(set, trusting)
		}
	})
}

// On a quiet partition nothing but the sweep changes how many keys there are.
func TestStateKeysFollowTheSweep(t *testing.T) {
	onKafka(t, func(t *testing.T, r *rig) {
		r.createTime()
		m := r.begin(compile(t, shortLived), func(c *Config) { c.BrokerTime = brokerTimeCreate })
		now := time.Now()
		for _, uid := range uids(40) {
			r.emitAt(now.Add(-time.Minute), 0, `{"uid":"`+uid+`","api":"a"}`)
		}
		keys := func() (n float64) {
			for _, p := range m.owned() {
				n += m.counterOf(t, "tallygate_state_keys", label(p.ID()))
			}
			return n
		}
		eventually(t, "40 keys are shown", func() bool { return keys() == 40 })
		for id := range int32(rigPartitions) {
			r.emitAt(now, id, `{"api":"anonymous"}`)
		}
		eventually(t, "none is shown once they are swept", func() bool { return keys() == 0 })
	})
}
