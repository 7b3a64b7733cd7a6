package aggregate

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/pipeline/event"
)

// A partition that fails again and again is taken over again and again. The session goes on, and all other
// partitions count as if nothing were.
func TestAFailingPartitionDisturbsNoOther(t *testing.T) {
	t.Parallel()
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	r := newRig(t, k.ListenAddrs())
	m := r.start(compile(t, yearly), func(c *Config) { c.BrokerTime = "create" })
	r.ready(m)
	m.mu.RLock()
	began := m.session
	m.mu.RUnlock()
	sick := event.Partition([]byte("u0"), rigPartitions)
	id := k.TopicInfo(r.names.Events).TopicID
	var mended atomic.Bool
	k.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
		k.KeepControl()
		fetch := req.(*kmsg.FetchRequest)
		for _, t := range fetch.Topics {
			for _, p := range t.Partitions {
				if t.TopicID == id && p.Partition == sick && !mended.Load() {
					return brokenAlone(fetch, id, sick), nil, true
				}
			}
		}
		return nil, nil, false
	})
	counts := map[string]int{}
	emit := func() {
		for _, uid := range uids(17) {
			counts[uid]++
			r.emit(hit(uid, "a"))
		}
	}
	counted := func(all bool) func() bool {
		return func() bool {
			for uid, n := range counts {
				if id := event.Partition([]byte(uid), rigPartitions); id == sick && !all {
					continue
				}
				if r.count(uid, "per-year", m) != event.Decimal(n)*event.One {
					return false
				}
			}
			return true
		}
	}
	failures := func() float64 {
		n, _ := m.sample(t, "tallygate_partition_failures_total", fmt.Sprintf("partition=%d", sick))
		return n
	}
	for n := range 3 {
		emit()
		eventually(t, "the others count", counted(false))
		eventually(t, "the partition fails", func() bool { return failures() > float64(n) })
	}
	if m.Ready() == nil && failures() == 0 {
		t.Error("ready, with a partition that is not counted")
	}
	for id := range int32(rigPartitions) {
		if n, _ := m.sample(t, "tallygate_takeovers_total", fmt.Sprintf("partition=%d", id)); id != sick && n != 1 {
			t.Errorf("partition %d was taken over %v times", id, n)
		}
	}
	mended.Store(true)
	eventually(t, "the partition counts", counted(true))
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.session != began {
		t.Error("the session ended")
	}
}

// brokenAlone answers a fetch of one partition with a batch whose checksum is wrong, and of others with nothing.
func brokenAlone(req *kmsg.FetchRequest, id [16]byte, sick int32) *kmsg.FetchResponse {
	var alone kmsg.FetchRequest = *req
	alone.Topics = nil
	for _, t := range req.Topics {
		only := t
		only.Partitions = nil
		for _, p := range t.Partitions {
			if t.TopicID == id && p.Partition == sick {
				only.Partitions = append(only.Partitions, p)
			}
		}
		if len(only.Partitions) > 0 {
			alone.Topics = append(alone.Topics, only)
		}
	}
	return broken(&alone, id)
}

// minISR lets a topic take appends, or none: there is one replica.
func (r *rig) minISR(topic, n string) {
	r.t.Helper()
	admin, err := sarama.NewClusterAdminFromClient(r.client)
	if err != nil {
		r.t.Fatal(err)
	}
	s := r.topicSettings(topic)
	s["min.insync.replicas"] = &n
	if err := admin.AlterConfig(sarama.TopicResource, topic, s, false); err != nil {
		r.t.Fatal(err)
	}
}

// While the loop topic takes no appends, whatever is asked of the partition is answered: only events wait. A stop
// comes to its end, and what was not acknowledged is counted once by the next owner.
func TestNothingHangsWhileATopicTakesNoAppends(t *testing.T) {
	for _, which := range []string{"loop", "verdicts", "changelog", "dead letters"} {
		t.Run(which, func(t *testing.T) {
			onKafka(t, func(t *testing.T, r *rig) {
				set := compile(t, byIPAndUID)
				m := r.start(set)
				r.ready(m)
				topic := map[string]string{"loop": r.names.Loop, "verdicts": r.names.Verdicts, "changelog": r.names.Table, "dead letters": r.names.DeadLetters}[which]
				l := r.load()
				l.emit(60)
				l.counted(m)
				r.minISR(topic, "2")
				for range 6 { // more than writers queue
					r.emit(padded(l, 1000)...)
				}
				if which == "dead letters" {
					for range 40 {
						r.emitTo(r.names.Events, 0, strings.Repeat("no event, ", 50_000))
					}
				}
				eventually(t, "a partition falls behind, or waits", func() bool { return r.stuck(m) })
				asked := make(chan struct{})
				go func() {
					defer close(asked)
					for uid := range l.byUID {
						r.count(uid, "per-year", m)
					}
					for _, p := range m.owned() {
						p.use(m.book.current.Load())
					}
				}()
				select {
				case <-asked:
				case <-time.After(time.Minute):
					t.Fatal("what is asked of a partition is not answered")
				}
				m.end(t)
				r.minISR(topic, "1")
				m = r.start(set)
				r.ready(m)
				l.counted(m)
				l.stays(m)
			})
		})
	}
}

// padded are n of the load's events that take some KB each, and are counted by another partition too.
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

// stuck reports whether no partition gets on: two looks, a while apart, find the same.
func (r *rig) stuck(m *member) bool {
	places := func() map[int32][lanes]int64 {
		all := map[int32][lanes]int64{}
		for _, p := range m.owned() {
			p.lock()
			all[p.id] = p.next
			p.mu.Unlock()
		}
		return all
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Second)
	defer cancel()
	before := fmt.Sprint(places())
	<-ctx.Done()
	return fmt.Sprint(places()) == before
}
