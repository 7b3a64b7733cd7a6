package aggregate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// What an operator's hand does to the four topics that counts rest on: each is recreated,
// truncated and grown, under a running aggregator and between two. Nothing is skipped in
// silence.

// topicSettings are the settings without which a topic would be refused for another reason.
func (r *rig) topicSettings(topic string) map[string]*string {
	s := map[string]*string{"message.timestamp.type": ptr("LogAppendTime"), "max.message.bytes": ptr("2097152")}
	switch topic {
	case r.names.Table:
		s["cleanup.policy"] = ptr("compact")
	case r.names.Verdicts:
		s["cleanup.policy"] = ptr("compact,delete")
	}
	return s
}

// load is events of some uids and ips, and what they should count up to.
type load struct {
	r     *rig
	next  int
	byUID map[string]int
	byIP  map[string]int

	uids    int
	pending *event.Event // was refused
}

func (r *rig) load() *load {
	return &load{r: r, uids: 17, byUID: map[string]int{}, byIP: map[string]int{}}
}

// counting begins a member, which has counted the first n events of a load.
func (r *rig) counting(set *rules.Set, n int, change ...func(*Config)) (*member, *load) {
	r.t.Helper()
	m, l := r.begin(set, change...), r.load()
	l.emit(n)
	l.counted(m)
	return m, l
}

// emit sends n more events, a third of which another partition counts, too.
func (l *load) emit(n int) {
	var events []*event.Event
	for range n {
		e := hit(fmt.Sprintf("u%d", l.next%l.uids), "a.b")
		l.byUID[e.UID]++
		if l.next%3 == 0 {
			e.IP = ipOf(l.next % 5)
			l.byIP[e.IP.String()]++
		}
		e.ID = fmt.Sprintf("e%d", l.next)
		l.next++
		events = append(events, e)
	}
	l.r.emit(events...)
}

// counted waits until all is counted.
func (l *load) counted(ms ...*member) {
	l.r.t.Helper()
	eventually(l.r.t, "all is counted once", func() bool { return l.differences(ms...) == "" })
}

// differences describes the first difference; "" is none.
func (l *load) differences(ms ...*member) string {
	for uid, n := range l.byUID {
		if got := l.r.count(uid, "per-year", ms...); got != event.Decimal(n)*event.One {
			return fmt.Sprintf("%s: %v, not %d", uid, got, n)
		}
	}
	for ip, n := range l.byIP {
		if got := l.r.countIP(ip, "by-ip", ms...); got != event.Decimal(n)*event.One {
			return fmt.Sprintf("%s: %v, not %d", ip, got, n)
		}
	}
	return ""
}

// stays checks, once the members have made checkpoints of everything, that nothing has been counted
// beyond what is expected.
func (l *load) stays(ms ...*member) {
	l.r.t.Helper()
	l.r.quiet(ms...)
	if d := l.differences(ms...); d != "" {
		l.r.t.Fatal(d)
	}
}

// quiet waits until the members have processed both topics to their ends.
func (r *rig) quiet(ms ...*member) {
	r.t.Helper()
	eventually(r.t, "all is processed", func() bool {
		done := 0
		for _, m := range ms {
			for _, p := range m.owned() {
				if !p.Opened() || p.Err() != nil {
					return false
				}
				var next []int64
				p.View(func(s *shard.Shard, _ *owner.Rules) {
					next = []int64{s.Log().Next(shard.Input), s.Log().Next(shard.Loop)}
				})
				for l, topic := range []string{r.names.Events, r.names.Loop} {
					if end, err := r.client.GetOffset(topic, p.ID(), sarama.OffsetNewest); err != nil || next[l] < r.lastRecord(topic, p.ID(), end) {
						return false
					}
				}
				done++
			}
		}
		return done == rigPartitions
	})
}

// lastRecord returns the end of processing: a log's end, unless it holds nothing.
func (r *rig) lastRecord(topic string, id int32, end int64) int64 {
	if oldest, err := r.client.GetOffset(topic, id, sarama.OffsetOldest); err != nil || oldest == end {
		return 0
	}
	return end
}

// counterOf reads a counter or a gauge of the member's with this label value, if it has a label.
func (m *member) counterOf(t *testing.T, name string, label ...string) float64 {
	t.Helper()
	families, err := m.cfg.Registry.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, x := range f.GetMetric() {
			if f.GetName() == name && (len(label) == 0 || x.GetLabel()[0].GetValue() == label[0]) {
				return x.GetCounter().GetValue() + x.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func accept(c *Config) { c.AcceptNewTopic = true }

// eachTopic runs a test for each of the four.
func eachTopic(t *testing.T, test func(t *testing.T, r *rig, topic string)) {
	t.Parallel()
	for _, name := range []string{"events", "loop", "table", "verdicts"} {
		t.Run(name, func(t *testing.T) {
			onRealKafka(t, func(t *testing.T, r *rig) {
				test(t, r, map[string]string{"events": r.names.Events, "loop": r.names.Loop, "table": r.names.Table, "verdicts": r.names.Verdicts}[name])
			})
		})
	}
}

// A recreated topic has other records at the same offsets. It is refused until an operator accepts
// it, and then continues for good.
func TestARecreatedTopicIsRefusedThenAccepted(t *testing.T) {
	eachTopic(t, func(t *testing.T, r *rig, topic string) {
		set := compile(t, byIPAndUID)
		m, l := r.counting(set, 300)
		m.end(t)
		r.recreate(topic, r.topicSettings(topic))
		r.refuses(set, topic)
		m = r.begin(set, accept)
		l.counted(m) // also with a new table: all events are still there
		m.end(t)

		m = r.start(set) // the acceptance is durable, even if nothing was counted since
		r.ready(m)
		l.emit(150) // fewer than before: offsets below those of the old topic
		l.counted(m)
		for _, p := range m.owned() {
			p.Fail(fmt.Errorf("killed by the test")) // and it survives a crash
		}
		l.emit(30)
		l.counted(m)
		l.stays(m)
	})
}

// The aggregator does not read on in a recreated topic, however many records that already has.
func TestATopicRecreatedUnderARunningAggregatorIsRefused(t *testing.T) {
	eachTopic(t, func(t *testing.T, r *rig, topic string) {
		set := compile(t, byIPAndUID)
		m, _ := r.counting(set, 100)
		r.recreate(topic, r.topicSettings(topic))
		var more []*sarama.ProducerMessage
		for p := range int32(rigPartitions) { // at once more than there were
			for range 200 {
				more = append(more, &sarama.ProducerMessage{Topic: topic, Partition: p, Key: sarama.StringEncoder("\x00"), Value: sarama.StringEncoder("{}")})
			}
		}
		r.sendAll(more)
		eventually(t, "the aggregator refuses", func() bool { return m.fatal() != nil })
		m.end(t)
		if err := m.fatal(); !strings.Contains(err.Error(), "--accept-new-topic") || !strings.Contains(err.Error(), topic) {
			t.Fatalf("it says: %v", err)
		}
	})
}

// Forwards of a deleted event topic still wait in the loop when those of the new one arrive. These
// have lower origins, and are not repeats.
func TestForwardsOfANewEventTopicAreNoRepeats(t *testing.T) {
	onRealKafka(t, func(t *testing.T, r *rig) {
		set := compile(t, byIPAndUID)
		m, l := r.counting(set, 60)
		m.end(t)
		from := int32(2) // an owner that sent its forwards and was stopped
		owner := ownerOf("10.0.9.9")
		for i := range 5 {
			e := hit("u1", "a.b")
			e.IP = ipOf(9*256 + 9)
			l.byIP["10.0.9.9"]++
			value := forwarded(from, int64(1000+i), e)
			r.sendAll([]*sarama.ProducerMessage{{Topic: r.names.Loop, Partition: owner, Value: sarama.ByteEncoder(value)}})
		}
		r.recreate(r.names.Events, r.topicSettings(r.names.Events))
		m = r.begin(set, accept)
		l.counted(m)
		l.emit(300)
		l.counted(m)
		l.stays(m)
	})
}

func ownerOf(ip string) int32 {
	return homeOf([]event.Dim{{Name: "ip", Value: ip}})
}

// deleteRecords deletes a topic's records up to their ends, or at most so many of each partition.
func (r *rig) deleteRecords(topic string, most int64) (deleted int64) {
	r.t.Helper()
	admin, err := sarama.NewClusterAdminFromClient(r.client)
	if err != nil {
		r.t.Fatal(err)
	}
	up := map[int32]int64{}
	for p := range int32(rigPartitions) {
		end, err := r.client.GetOffset(topic, p, sarama.OffsetNewest)
		if err != nil {
			r.t.Fatal(err)
		}
		up[p] = min(end, most)
		deleted += up[p]
	}
	if err := admin.DeleteRecords(topic, up); err != nil {
		r.t.Fatal(err)
	}
	return deleted
}

const all = 1 << 60

func TestATruncatedEventTopicIsCountedOnAndTheLossIsSaid(t *testing.T) {
	onRealKafka(t, func(t *testing.T, r *rig) {
		set := compile(t, byIPAndUID)
		m, l := r.counting(set, 100)
		r.deleteRecords(r.names.Events, all) // all of them counted: no loss
		l.emit(50)
		l.counted(m)
		m.end(t)
		lost := r.load()
		lost.emit(70)
		r.deleteRecords(r.names.Events, all)
		m = r.begin(set)
		if n := m.counterOf(t, "tallygate_records_lost_total"); n != 70 {
			t.Errorf("%v records are said to be lost, want 70", n)
		}
		l.next += 1000
		l.emit(40)
		l.counted(m)
		m.end(t)
		m = r.begin(set)
		l.stays(m)
		if n := m.counterOf(t, "tallygate_records_lost_total"); n != 0 {
			t.Errorf("%v records are said to be lost once more", n)
		}
	})
}

// The same loss is reported once where nothing is emitted any more.
func TestALossIsSaidOnce(t *testing.T) {
	onRealKafka(t, func(t *testing.T, r *rig) {
		set := compile(t, yearly)
		m := r.begin(set)
		r.emit(hit("u1", "a.b"))
		eventually(t, "one is counted", func() bool { return r.count("u1", "per-year", m) == event.One })
		m.end(t)
		r.emit(hit("u1", "a.b"), hit("u1", "a.b"))
		r.deleteRecords(r.names.Events, all)
		for i, want := range []float64{2, 0} {
			m = r.begin(set)
			if n := m.counterOf(t, "tallygate_records_lost_total"); n != want {
				t.Errorf("start %d: %v records are said to be lost, want %v", i+1, n, want)
			}
			m.end(t)
		}
	})
}

func TestATruncatedLoopIsCountedOnAndTheLossIsSaid(t *testing.T) {
	onRealKafka(t, func(t *testing.T, r *rig) {
		set := compile(t, byIPAndUID)
		m, l := r.counting(set, 100)
		m.end(t)
		var waiting []*sarama.ProducerMessage
		for i := range 9 { // forwards that were not counted
			e := hit("u1", "a.b")
			e.IP = ipOf(1)
			value := forwarded(1, int64(1000+i), e)
			waiting = append(waiting, &sarama.ProducerMessage{Topic: r.names.Loop, Partition: ownerOf("10.0.0.1"), Value: sarama.ByteEncoder(value)})
		}
		r.sendAll(waiting)
		r.deleteRecords(r.names.Loop, all)
		m = r.begin(set)
		if n := m.counterOf(t, "tallygate_records_lost_total"); n != 9 {
			t.Errorf("%v records are said to be lost, want 9", n)
		}
		l.emit(100)
		l.counted(m)
		l.stays(m)
	})
}

// Compaction does not move the start of a log. A changelog that begins later has lost states.
func TestATruncatedChangelogIsRefusedThenAccepted(t *testing.T) {
	onRealKafka(t, func(t *testing.T, r *rig) {
		set := compile(t, yearly)
		m := r.begin(set)
		for _, uid := range uids(40) {
			r.emit(hit(uid, "a.b"))
		}
		r.quiet(m)
		m.end(t)
		m = r.begin(set)
		for range 3 {
			r.emit(hit("u1", "a.b"))
		}
		eventually(t, "u1 has four", func() bool { return r.count("u1", "per-year", m) == 4*event.One })
		m.end(t)
		admin, err := sarama.NewClusterAdminFromClient(r.client)
		if err != nil {
			t.Fatal(err)
		}
		r.set(r.names.Table, "cleanup.policy", "delete")
		eventually(t, "the policy is known", func() bool { return admin.DeleteRecords(r.names.Table, map[int32]int64{0: 0}) == nil })
		r.deleteRecords(r.names.Table, 3)                 // the last checkpoint is still there
		r.set(r.names.Table, "cleanup.policy", "compact") // and known: the start checks it
		r.refuses(set, r.names.Table)
		m = r.begin(set, accept)
		m.end(t)
		m = r.begin(set)
		eventually(t, "u1 has four still", func() bool { return r.count("u1", "per-year", m) == 4*event.One })
	})
}

// Verdicts are deleted by age in any case: what is in Redis stays, and new ones continue.
func TestATruncatedVerdictTopicIsWrittenOn(t *testing.T) {
	onRealKafka(t, func(t *testing.T, r *rig) {
		set := compile(t, yearly)
		m := r.begin(set)
		block := func(uid string) verdict.Verdict {
			for range 5 {
				r.emit(hit(uid, "a.b"))
			}
			var v verdict.Verdict
			eventually(t, "there is the verdict on "+uid, func() bool {
				for _, v = range r.verdicts() {
					if v.KeyText() == "uid="+uid {
						return true
					}
				}
				return false
			})
			return v
		}
		before := block("u1")
		r.deleteRecords(r.names.Verdicts, all)
		if after := block("u1-" + uidBeside("u1")); after.Seq <= before.Seq {
			t.Errorf("seq %d follows %d", after.Seq, before.Seq)
		}
		m.end(t)
		r.deleteRecords(r.names.Verdicts, all)
		m = r.begin(set)
		block("u2")
		if n := r.count("u1", "per-year", m); n != 5*event.One {
			t.Errorf("u1 has %v", n)
		}
	})
}

// uidBeside returns a suffix that makes of uid another one in the same partition.
func uidBeside(uid string) string {
	for i := 0; ; i++ {
		if s := fmt.Sprint(i); event.Partition([]byte(uid+"-"+s), rigPartitions) == event.Partition([]byte(uid), rigPartitions) {
			return s
		}
	}
}

// More partitions would separate keys from their states. That is refused at once, also by a running
// aggregator, with the way to get them.
func TestATopicThatHasGrownIsRefused(t *testing.T) {
	eachTopic(t, func(t *testing.T, r *rig, topic string) {
		set := compile(t, byIPAndUID)
		m, _ := r.counting(set, 100)
		admin, err := sarama.NewClusterAdminFromClient(r.client)
		if err != nil {
			t.Fatal(err)
		}
		if err := admin.CreatePartitions(topic, rigPartitions+2, nil, false); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the running aggregator refuses", func() bool { return m.fatal() != nil })
		m.end(t)
		saysHowToMigrate(t, m.fatal(), topic)
		saysHowToMigrate(t, r.startRefused(set), topic)
	})
}

// startRefused starts a member that must not start, and returns why.
func (r *rig) startRefused(set *rules.Set) error {
	r.t.Helper()
	a, err := New(Config{Brokers: r.brokers, Rules: set, Prefix: r.names.Group, Partitions: rigPartitions})
	if err != nil {
		r.t.Fatal(err)
	}
	return a.Run(r.t.Context())
}

func saysHowToMigrate(t *testing.T, err error, topic string) {
	t.Helper()
	for _, want := range []string{topic, "migrate to 6 partitions", "start aggregators with the prefix"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
