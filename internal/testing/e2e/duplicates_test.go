package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// What a producer's retries put into the log twice counts once: an emitter's records by
// their numbers, a foreign producer's events by their ids.
func TestProducerDuplicates(t *testing.T) {
	t.Parallel() // it waits more than it works
	servers.Nightly(t, "kills")
	r := newRig(t, everything)
	rnd := newRand(t)
	p := r.aggregator("a", "--instance-id", "a").Start().Ready()
	enforcer := r.enforcer()

	events := 20_000 + r.emitToStaging(rnd)
	repeats := 0
	for part := range r.partitions {
		repeats += r.copyWithRepeats(rnd, part)
		if part == 1 {
			p.Kill() // what was repeated before a crash is known after it
			p.Start()
		}
	}
	repeats += r.foreignWithRepeats(rnd, 10_000)
	p.Kill()
	p.Start().Ready()
	r.caughtUp()
	t.Logf("%d events, %d records sent again", events, repeats)

	m := newModel(r)
	if m.again < 500 {
		t.Errorf("the model has met %d repeated ids: too few to prove anything", m.again)
	}
	m.compareCounters(t, m.keys(), p)
	n := newNaive(r)
	n.compare(t, "yearly-utc", "bytes-utc", p)
	if got := n.costs["batch0"]; got != 500 {
		t.Errorf("batch0 has %d events, not 500", got)
	}
	r.compareRedis(m.compareVerdicts(r))
	compareTable(t, enforcer, m.lastPublished(r))
}

// staging is where emitters write what is then copied, in part twice.
func (r *rig) staging() string { return r.prefix + ".staging" }

// emitToStaging writes 20,000 events of all kinds, and batches of 500 of one uid, with and
// without several in a record.
func (r *rig) emitToStaging(rnd *rand.Rand) (more int) {
	r.t.Helper()
	err := r.admin.CreateTopic(r.staging(), &sarama.TopicDetail{NumPartitions: r.partitions, ReplicationFactor: 1}, false)
	if err != nil {
		r.t.Fatal(err)
	}
	g := &traffic{rnd: rnd, uids: 1000}
	for i, size := range []int{1, 20, 500} {
		e := r.emitter(func(c *emit.Config) { c.Topic, c.EventsPerRecord = r.staging(), size })
		for range 20_000 / 3 {
			if err := e.EmitWait(r.t.Context(), g.next()); err != nil {
				r.t.Fatal(err)
			}
		}
		for range 500 {
			ev := event.Event{UID: fmt.Sprintf("batch%d", i), API: "profile.view", Cost: event.One, Time: event.NoTime}
			if err := e.EmitWait(r.t.Context(), ev); err != nil {
				r.t.Fatal(err)
			}
		}
		more += 500
		closeEmitter(r.t, e)
	}
	return more
}

// copyWithRepeats copies a partition with its headers. One run of records in ten comes again:
// at once, or after what came later.
func (r *rig) copyWithRepeats(rnd *rand.Rand, part int32) (repeats int) {
	r.t.Helper()
	var all, out []*sarama.ProducerMessage
	r.records(r.staging(), part, func(m *sarama.ConsumerMessage) { all = append(all, r.again(m)) })
	var late [][]*sarama.ProducerMessage
	for len(all) > 0 {
		n := min(len(all), 1+rnd.IntN(60))
		run := all[:n]
		all = all[n:]
		out = append(out, run...)
		if len(late) > 0 && rnd.IntN(3) == 0 {
			out, late = append(out, clones(late[0])...), late[1:]
		}
		switch rnd.IntN(20) {
		case 0: // at once
			out = append(out, clones(run)...)
		case 1: // later
			late = append(late, run)
		default:
			continue
		}
		repeats += n
	}
	for _, run := range late {
		out = append(out, clones(run)...)
	}
	r.put(out)
	return repeats
}

func (r *rig) again(m *sarama.ConsumerMessage) *sarama.ProducerMessage {
	out := &sarama.ProducerMessage{Topic: r.names.Events, Partition: m.Partition, Value: sarama.ByteEncoder(m.Value)}
	if m.Key != nil {
		out.Key = sarama.ByteEncoder(m.Key)
	}
	for _, h := range m.Headers {
		out.Headers = append(out.Headers, *h)
	}
	return out
}

// clones are the same records: a producer notes its outcome in each.
func clones(msgs []*sarama.ProducerMessage) []*sarama.ProducerMessage {
	out := make([]*sarama.ProducerMessage, len(msgs))
	for i, m := range msgs {
		out[i] = &sarama.ProducerMessage{Topic: m.Topic, Partition: m.Partition, Key: m.Key, Value: m.Value, Headers: m.Headers}
	}
	return out
}

// foreignWithRepeats writes n events with ids and without an emitter's headers, one in ten
// of them again soon after.
func (r *rig) foreignWithRepeats(rnd *rand.Rand, n int) (repeats int) {
	r.t.Helper()
	var out, late []*sarama.ProducerMessage
	for i := range n {
		uid := fmt.Sprintf("f%d", rnd.IntN(500))
		m := r.record(uid, fmt.Sprintf(`{"id":"foreign-%d","uid":%q,"api":"search.query"}`, i, uid))
		out = append(out, m)
		if rnd.IntN(10) == 0 {
			late = append(late, m)
		}
		if len(late) > rnd.IntN(50) {
			out, late = append(out, clones(late[:1])...), late[1:]
			repeats++
		}
	}
	r.put(append(out, clones(late)...))
	return repeats + len(late)
}

// record is one in the uid's partition.
func (r *rig) record(uid, value string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: r.names.Events, Partition: event.Partition([]byte(uid), r.partitions),
		Key: sarama.StringEncoder(uid), Value: sarama.StringEncoder(value)}
}
