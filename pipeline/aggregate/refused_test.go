package aggregate

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// refuse makes a topic refuse appends while one of three brokers is down. It needs three, because
// Kafka bounds min.insync.replicas by the number of replicas.
func (r *rig) refuse(topic string) {
	r.t.Helper()
	if err := r.client.RefreshMetadata(); err != nil { // who leads
		r.t.Fatal(err)
	}
	r.set(topic, "min.insync.replicas", "3")
}

// refused waits until Kafka has refused an append.
func (r *rig) refused(m *member) {
	r.t.Helper()
	eventually(r.t, "an append is refused", func() bool {
		n, _ := m.sample(r.t, "tallygate_kafka_errors_total", "reason=replicas")
		return n > 0
	})
}

// take makes it accept them again.
func (r *rig) take(topic string) { r.set(topic, "min.insync.replicas", "2") }

// While a topic takes no appends, a partition still answers every question: only events wait. A
// stop ends in time, and the next owner counts once what was not acknowledged. If it is the audit
// topic, not even events wait; if it is the repartition topic, only when much waits for it.
func TestNothingHangsWhileATopicTakesNoAppends(t *testing.T) {
	t.Parallel() // it mostly waits
	kafka := servers.StartKafkaCluster(t, 3, nil)
	cases := []struct {
		name, rules string
		topic       func(*topics.Names) string
		test        func(t *testing.T, r *rig, m *member, topic string)
		change      func(*Config)
		r           *rig
		m           *member
	}{
		{name: "loop, whole events, and little may wait", rules: byIPAndUID, topic: func(n *topics.Names) string { return n.Loop }, test: nothingHangs,
			change: func(c *Config) { c.ForwardWhole, c.BufferBytes = true, 4<<20 }},
		{name: "loop", rules: byIPAndUID, topic: func(n *topics.Names) string { return n.Loop }, test: onlyForwardsWait},
		{name: "verdicts", rules: byIPAndUID, topic: func(n *topics.Names) string { return n.Verdicts }, test: nothingHangs},
		{name: "changelog", rules: byIPAndUID, topic: func(n *topics.Names) string { return n.Table }, test: nothingHangs},
		{name: "dead letters", rules: byIPAndUID, topic: func(n *topics.Names) string { return n.DeadLetters }, test: nothingHangs},
		{name: "audit", rules: yearly, topic: func(n *topics.Names) string { return n.Audit }, test: nothingWaits},
	}
	for i := range cases { // topics are created while all brokers run
		c := &cases[i]
		c.r = newRig(t, kafka.Addrs())
		c.m = c.r.start(compile(t, c.rules), func(cfg *Config) {
			if c.change != nil {
				c.change(cfg)
			}
		})
		c.r.ready(c.m)
	}
	kafka.Nodes[2].Stop() // not killed: the others would believe it alive for some seconds
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.r.t = t
			c.test(t, c.r, c.m, c.topic(&c.r.names))
		})
	}
}

func nothingHangs(t *testing.T, r *rig, m *member, topic string) {
	r.refuse(topic)
	l := r.load()
	l.emit(60)
	waits := topic == r.names.Loop || topic == r.names.DeadLetters
	for range 6 { // more than the writers' queues hold
		r.emit(padded(l, 1000)...)
	}
	if topic == r.names.DeadLetters {
		for range 80 {
			r.emitTo(r.names.Events, 0, strings.Repeat("no event, ", 50_000))
		}
	}
	r.refused(m)
	if waits {
		eventually(t, "a partition waits, with events behind it", func() bool { return r.stuck(m) })
	}
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for uid := range l.byUID {
			r.count(uid, "per-year", m)
		}
		for _, p := range m.owned() {
			p.Use(m.book.Current())
		}
	}()
	select {
	case <-asked:
	case <-time.After(time.Minute):
		t.Fatal("what is asked of a partition is not answered")
	}
	m.end(t)
	r.take(topic)
	m = r.begin(compile(t, byIPAndUID))
	l.counted(m)
	l.stays(m)
	m.end(t)
}

// onlyForwardsWait checks that events are counted on keys of the partitions that read them while nothing can be
// forwarded, and then on all others, once.
func onlyForwardsWait(t *testing.T, r *rig, m *member, topic string) {
	r.refuse(topic)
	l := r.load()
	l.emit(60)
	for range 6 {
		r.emit(padded(l, 1000)...)
	}
	r.refused(m)
	byIP := l.byIP
	l.byIP = nil
	l.counted(m) // on uids
	if r.stuck(m) {
		t.Error("a partition waits, though not much is to be forwarded")
	}
	l.byIP = byIP
	if l.differences(m) == "" {
		t.Error("the topic refuses appends, and what is forwarded through it is counted")
	}
	r.take(topic)
	l.counted(m)
	l.stays(m)
}

// nothingWaits checks that events are counted and verdicts published while the audit topic takes
// nothing. When it does again, it receives all records.
func nothingWaits(t *testing.T, r *rig, m *member, topic string) {
	const users = 2000
	r.refuse(topic)
	r.emitEach(uids(users), 5)
	eventually(t, "all are over their limit", func() bool { blocked, _ := r.blockedAndCleared(); return blocked == users })
	r.emitEach(uids(users), 1)
	eventually(t, "it counts on", func() bool { return r.count("u7", "per-year", m) == 6*event.One })
	r.refused(m)
	if n := r.audited(); n != 0 {
		t.Fatalf("the audit, which refuses all, has %d verdicts", n)
	}
	r.take(topic)
	eventually(t, "the audit has all of them", func() bool { return r.audited() == users })
}

// audited is the number of keys with an audit record.
func (r *rig) audited() int {
	r.t.Helper()
	lines := map[string]bool{}
	for id := range int32(rigPartitions) {
		for _, rec := range r.records(r.names.Audit, id) {
			lines[string(rec.Key)] = true
		}
	}
	return len(lines)
}

// padded returns n of the load's events of some KB each, which another partition counts too.
func padded(l *load, n int) (events []*event.Event) {
	for range n {
		e := hit(fmt.Sprintf("u%d", l.next%l.uids), "a.b")
		l.byUID[e.UID]++
		e.IP = ipOf(l.next % 5)
		l.byIP[e.IP.String()]++
		e.ID = fmt.Sprintf("e%d", l.next)
		e.Attrs = []event.Attr{{Name: "padding", Value: event.Value{Kind: event.String, Text: strings.Repeat("x", 3000)}}}
		l.next++
		events = append(events, e)
	}
	return events
}

// stuck reports whether some partition makes no progress although it has events: two checks, a
// while apart, find the same.
func (r *rig) stuck(m *member) bool {
	places := func() map[int32]int64 {
		waiting := map[int32]int64{}
		for _, p := range m.owned() {
			if p.Backlog(shard.Input, time.Now()).Records > 0 || p.Backlog(shard.Loop, time.Now()).Records > 0 {
				p.View(func(s *shard.Shard, _ *owner.Rules) {
					waiting[p.ID()] = s.Log().Next(shard.Input) + s.Log().Next(shard.Loop)
				})
			}
		}
		return waiting
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Second)
	defer cancel()
	before := places()
	<-ctx.Done()
	for id, at := range places() {
		if was, waited := before[id]; waited && was == at {
			return true
		}
	}
	return false
}
