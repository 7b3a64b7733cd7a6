package aggregate

import (
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
)

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
	inMemory(t, func(t *testing.T, r *rig) {
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
	inMemory(t, func(t *testing.T, r *rig) {
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
