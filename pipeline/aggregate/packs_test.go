package aggregate

import (
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
)

// packsIn counts the packs of forwarded events, and the events that were forwarded whole.
func (r *rig) packsIn() (packs, whole int) {
	const kindPack = 5
	for p := range int32(rigPartitions) {
		for _, rec := range r.records(r.names.Loop, p) {
			switch {
			case len(rec.Key) > 0 || len(rec.Value) < 2:
			case rec.Value[1] == kindPack:
				packs++
			default:
				whole++
			}
		}
	}
	return packs, whole
}

// Two instances pack what they forward to each other, and count each event once. When one joins that reads no
// packs, events are forwarded whole.
func TestWhatIsForwardedIsPackedIfAllReadPacks(t *testing.T) {
	everyKafka(t, func(t *testing.T, r *rig) {
		set := compile(t, byIPAndUID)
		ms := r.two(set)
		emitted := 0
		emit := func() {
			t.Helper()
			var msgs []*sarama.ProducerMessage
			for i := range 200 {
				e := hit(fmt.Sprintf("u%d", i), "a.b")
				e.ID, e.IP = fmt.Sprintf("%d-%d", emitted, i), ipOf(1)
				msgs = append(msgs, &sarama.ProducerMessage{Topic: r.names.Events, Partition: int32(i % rigPartitions), Value: sarama.ByteEncoder(event.AppendJSON(nil, e))})
			}
			r.sendAll(msgs)
			emitted += len(msgs)
			eventually(t, "all are counted on the address", func() bool { return r.countIP("10.0.0.1", "by-ip", ms...) == event.Decimal(emitted)*event.One })
		}
		emit()
		eventually(t, "both know that all read packs", func() bool { return ms[0].packs.allowed() && ms[1].packs.allowed() })
		_, before := r.packsIn()
		emit()
		if packs, whole := r.packsIn(); packs == 0 || packs > 100 || whole != before {
			t.Errorf("%d packs, and %d more events were forwarded whole", packs, whole-before)
		}
		session := ms[0].packs.session.Load()
		ms[1].end(t)
		older := r.start(set, func(c *Config) { c.ForwardWhole = true })
		r.ready(ms[0], older)
		ms = []*member{ms[0], older}
		eventually(t, "the two share the partitions", func() bool { return sharing(ms...) })
		joined := time.Now()
		eventually(t, "the newer one looks at the members", func() bool { return ms[0].members.last.Load().at.After(joined) })
		if ms[0].packs.session.Load() == session {
			t.Error("there was no other session")
		}
		if ms[0].packs.allowed() || older.packs.allowed() {
			t.Error("there are packs beside an instance that reads none")
		}
		packs, _ := r.packsIn()
		emit()
		if more, _ := r.packsIn(); more != packs {
			t.Errorf("%d packs more beside an instance that reads none", more-packs)
		}
	})
}
