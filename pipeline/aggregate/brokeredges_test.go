package aggregate

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
)

// Takeovers at the limits of what a broker remembers, on a broker of the test's own. Its
// coordinator forgets transactional ids after six seconds, and it compacts at once.
func TestTakeoversAtTheEdges(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a broker")
	}
	broker := servers.StartKafka(t, map[string]string{
		"transactional.id.expiration.ms":                             "6000",
		"transaction.remove.expired.transaction.cleanup.interval.ms": "100",
		"log.cleaner.backoff.ms":                                     "100",
	})
	rig := func(t *testing.T) *rig { return newRig(t, []string{broker.Addr()}) }
	t.Run("another id, a crash, and compaction", func(t *testing.T) { zombieOfAnExpiredID(t, rig(t)) })
	t.Run("compaction during recovery", func(t *testing.T) { compactionDuringRecovery(t, rig(t)) })
	t.Run("transaction markers", func(t *testing.T) { transactionMarkers(t, rig(t)) })
	t.Run("the broker is killed", func(t *testing.T) { crashDuringTakeover(t, rig(t), broker) })
}

// compactAtOnce makes a topic roll and clean its log as often as it can.
func (r *rig) compactAtOnce(topic string) {
	r.t.Helper()
	for _, s := range [][2]string{{"segment.ms", "100"}, {"segment.bytes", "1048576"}, {"min.cleanable.dirty.ratio", "0.01"}, {"delete.retention.ms", "0"}} {
		r.set(topic, s[0], s[1])
	}
}

// The last owner but one is paused, its producer id expires, the last owner crashed before it could
// fence that id, and compaction cleaned the log. When the paused owner wakes up, every partition
// refuses it, also those that it has never written to.
func zombieOfAnExpiredID(t *testing.T, r *rig) {
	set := compile(t, byIPAndUID)
	m, l := r.counting(set, 100)
	m.end(t)
	r.compactAtOnce(r.names.Table)

	zombie := r.owner(0)
	asleep := zombie.NewWriter(r.names.Table, 0)
	r.fence(asleep)
	var last *fenced.Identity
	eventually(t, "the transactional id is forgotten", func() bool {
		time.Sleep(6500 * time.Millisecond) // each request renews it for as long
		last = r.owner(0)
		return last.ProducerID() != zombie.ProducerID()
	})
	w := last.NewWriter(r.names.Table, 0)
	eventually(t, "the last owner's fences are compacted", func() bool {
		for range 3 {
			r.fence(w)
		}
		n := 0
		for _, rec := range r.records(r.names.Table, 0) {
			if string(rec.Key) == fmt.Sprintf("\x00fence/%d", last.ProducerID()) {
				n++
			}
		}
		time.Sleep(100 * time.Millisecond)
		return n <= 4 // one is left of those in closed segments
	})

	m = r.begin(set)
	l.emit(300) // also forwards to all partitions
	l.counted(m)
	for _, w := range []*fenced.Writer{asleep, zombie.NewWriter(r.names.Verdicts, 0), zombie.NewWriter(r.names.Loop, ownerOf("10.0.0.0")),
		zombie.NewWriter(r.names.Loop, ownerOf("10.0.0.3"))} {
		if _, err := w.Fence(t.Context()); !errors.Is(err, fenced.ErrFenced) {
			t.Errorf("the zombie appended: %v", err)
		}
	}
	l.stays(m)
}

func (r *rig) owner(partition int32) *fenced.Identity {
	r.t.Helper()
	id, err := fenced.Acquire(r.t.Context(), r.asOwner(partition))
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

func (r *rig) fence(w *fenced.Writer) {
	r.t.Helper()
	if _, err := w.Fence(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// Owners read a changelog while it is being compacted under them.
func compactionDuringRecovery(t *testing.T, r *rig) {
	set := compile(t, byIPAndUID)
	m := r.begin(set)
	r.compactAtOnce(r.names.Table)
	l := r.load()
	l.uids = 1500
	for range 3 {
		l.emit(5000)
		l.counted(m)
		for _, p := range m.owned() {
			p.Fail(errors.New("killed by the test"))
		}
	}
	l.counted(m)
	m.end(t)
	m = r.begin(set)
	l.stays(m)
	end, err := r.client.GetOffset(r.names.Table, 0, sarama.OffsetNewest)
	if err != nil {
		t.Fatal(err)
	}
	if left := len(r.records(r.names.Table, 0)); int64(left) >= end {
		t.Errorf("%d of %d records are left: nothing was compacted", left, end)
	}
}

// Other producers' transactions end in markers, which take offsets and are no records, even at the
// very ends of logs.
func transactionMarkers(t *testing.T, r *rig) {
	set := compile(t, byIPAndUID)
	m, l := r.counting(set, 100)
	m.end(t)
	for range 2 {
		l.transaction(t, kgo.TryCommit)
		l.transaction(t, kgo.TryAbort)
		m = r.begin(set)
		l.counted(m)
		l.emit(30)
		l.counted(m)
		m.end(t)
	}
	m = r.begin(set)
	l.counted(m)
}

// transaction writes events in a transaction, and records without readers to the owners' topics.
func (l *load) transaction(t *testing.T, end kgo.TransactionEndTry) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(l.r.brokers...), kgo.TransactionalID(l.r.names.Group+"-foreign"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	var records []*kgo.Record
	for p := range int32(rigPartitions) {
		for _, topic := range []string{l.r.names.Table, l.r.names.Verdicts, l.r.names.Loop} {
			records = append(records, &kgo.Record{Topic: topic, Partition: p, Key: []byte("\x00foreign"), Value: []byte("{}")})
		}
		uid := fmt.Sprintf("u%d", p)
		e := hit(uid, "a.b")
		records = append(records, &kgo.Record{Topic: l.r.names.Events, Partition: event.Partition([]byte(uid), rigPartitions), Value: event.AppendJSON(nil, e)})
		if end == kgo.TryCommit {
			l.byUID[uid]++
		}
	}
	if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := c.EndTransaction(ctx, end); err != nil {
		t.Fatal(err)
	}
}

// The broker crashes between an owner's fence and the end of its recovery.
func crashDuringTakeover(t *testing.T, r *rig, broker *servers.KafkaProc) {
	set := compile(t, byIPAndUID)
	m := r.begin(set)
	l := r.load()
	l.uids = 2000
	l.emit(12_000)
	l.counted(m)
	m.end(t)
	l.emit(500)
	before, err := r.client.GetOffset(r.names.Table, 0, sarama.OffsetNewest)
	if err != nil {
		t.Fatal(err)
	}
	zombie := r.owner(0)
	m = r.start(set)
	eventually(t, "the next owner has fenced", func() bool {
		end, err := r.client.GetOffset(r.names.Table, 0, sarama.OffsetNewest)
		return err == nil && end > before
	})
	broker.Kill()
	t.Log("killed while the owner was ready:", m.Ready() == nil)
	broker.Start()
	r.ready(m)
	l.counted(m)
	if _, err := zombie.NewWriter(r.names.Table, 0).Fence(t.Context()); !errors.Is(err, fenced.ErrFenced) {
		t.Errorf("after the crash an older owner appended: %v", err)
	}
	l.emit(100)
	l.counted(m)
	l.stays(m)
}
