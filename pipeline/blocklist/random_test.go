package blocklist

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

var _ Sink = (*enforce.Table)(nil)

// TestAnythingGoes lets two instances own four partitions by turns, flushes Redis, loses offers,
// restarts publishers and feeds, and then compares what the enforcer's table says with what was
// published. TALLYGATE_TEST_SEED repeats a run's decisions.
func TestAnythingGoes(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		w := newWorld(t, client, rand.New(rand.NewPCG(testrun.Seed(t), 1)))
		for range 400 {
			w.step()
		}
		for partition := range w.owner { // a new owner reads what was never offered
			w.publishers[0].Disown(int32(partition))
			w.publishers[1].Disown(int32(partition))
			w.own(partition, w.r.IntN(2))
		}
		for name, table := range map[string]*enforce.Table{"long": w.table, "late": w.late()} {
			t.Cleanup(func() {
				if t.Failed() {
					w.explain(table)
				}
			})
			testrun.Eventually(t, "the "+name+" running table has what was published", func() bool { return w.equal(table) })
		}
	})
}

type world struct {
	t      *testing.T
	r      *rand.Rand
	client redis.UniversalClient
	kafka  *rig.Broker

	publishers [2]*publish.Publisher
	stops      [2]func()
	owner      [4]int
	seq        int64
	model      map[string]verdict.Verdict

	table    *enforce.Table
	feed     *Feed
	stopFeed func()
}

func newWorld(t *testing.T, client redis.UniversalClient, r *rand.Rand) *world {
	w := &world{t: t, r: r, client: client, kafka: rig.NewBroker(t, 4), model: map[string]verdict.Verdict{}}
	for i := range w.publishers {
		w.startPublisher(i)
	}
	for partition := range w.owner {
		w.own(partition, partition%2)
	}
	w.table = w.newTable()
	w.follow()
	return w
}

func (w *world) newTable() *enforce.Table {
	table, err := enforce.NewTable(enforce.Config{Shards: 2})
	if err != nil {
		w.t.Fatal(err)
	}
	return table
}

func (w *world) late() *enforce.Table {
	table := w.newTable()
	startFeed(w.t, w.client, table, func(c *FeedConfig) { c.Shards = 2 })
	return table
}

func (w *world) follow() {
	w.feed, w.stopFeed = startFeed(w.t, w.client, w.table, func(c *FeedConfig) { c.Shards = 2 })
}

func (w *world) startPublisher(i int) {
	w.publishers[i], w.stops[i] = startPublisher(w.t, w.kafka, w.client, func(c *publish.Config) {
		c.Partitions, c.Shards, c.BatchSize, c.Buffer, c.StreamLength = 4, 2, 7, 20_000, 50
	})
}

// own moves a partition. The old owner hears of it only sometimes: it may be paused.
func (w *world) own(partition, to int) {
	if from := w.owner[partition]; from != to && w.r.IntN(2) == 0 {
		w.publishers[from].Disown(int32(partition))
	}
	w.owner[partition] = to
	w.publishers[to].Own(int32(partition))
	w.kafka.Write(int32(partition), rig.Fence())
}

func (w *world) step() {
	switch n := w.r.IntN(100); {
	case n < 80:
		w.publish()
	case n < 88:
		w.own(w.r.IntN(4), w.r.IntN(2))
	case n < 90:
		if err := w.client.FlushAll(w.t.Context()).Err(); err != nil {
			w.t.Fatal(err)
		}
	case n < 92:
		i := w.r.IntN(2)
		w.stops[i]()
		w.startPublisher(i)
		for partition, owner := range w.owner {
			if owner == i {
				w.publishers[i].Own(int32(partition))
			}
		}
	case n < 94:
		w.stopFeed()
		w.follow()
	default:
		// Not to wait for anything: it lets things get done.
		time.Sleep(time.Duration(w.r.IntN(20)) * time.Millisecond)
	}
}

// publish writes some verdicts as the partition's owner, and offers them, mostly.
func (w *world) publish() {
	partition := w.r.IntN(4)
	var records []publish.Record
	for range 1 + w.r.IntN(20) {
		uid := fmt.Sprintf("%d-%d", partition, w.r.IntN(60))
		w.seq++
		v := rig.Block(uid, w.seq, time.Hour+time.Duration(w.r.IntN(1000))*time.Second)
		key := string(verdict.AppendRecordKey(nil, &v))
		switch w.r.IntN(5) {
		case 0:
			v = rig.Clearing(uid, w.seq)
			records = append(records, rig.Record(v))
			delete(w.model, key)
		case 1:
			records = append(records, rig.Tombstone(v))
			delete(w.model, key)
		default:
			records = append(records, rig.Record(v))
			w.model[key] = v
		}
	}
	first, next, offered := w.kafka.Write(int32(partition), records...)
	if w.r.IntN(10) > 0 {
		w.publishers[w.owner[partition]].Offer(int32(partition), first, next, offered)
	}
}

func (w *world) equal(table *enforce.Table) bool {
	got := map[string]verdict.Verdict{}
	all, _ := table.List("", "", 1<<20)
	for _, v := range all {
		got[string(verdict.AppendRecordKey(nil, v))] = *v
	}
	if !slices.Equal(rig.Text(got), rig.Text(w.model)) || !table.Ready() {
		return false
	}
	for partition := range 4 {
		for i := range 60 {
			uid := fmt.Sprintf("%d-%d", partition, i)
			_, blocked := w.model["uid="+uid+"|r"]
			if table.CheckAt(event.FromTime(time.Now()), "any", uid).Allowed == blocked {
				return false
			}
		}
	}
	return true
}

// explain logs how a table differs from what was published.
func (w *world) explain(table *enforce.Table) {
	w.t.Logf("feed %+v, ready %v, staleness %v", w.feed.Stats(), table.Ready(), table.Staleness())
	for i, p := range w.publishers {
		w.t.Logf("publisher %d: %+v", i, p.Stats())
	}
	got := map[string]verdict.Verdict{}
	all, _ := table.List("", "", 1<<20)
	for _, v := range all {
		key := string(verdict.AppendRecordKey(nil, v))
		if got[key] = *v; w.model[key].Seq != v.Seq {
			w.t.Logf("%s has seq %d, want %d", key, v.Seq, w.model[key].Seq)
		}
	}
	for key, v := range w.model {
		if _, ok := got[key]; !ok {
			w.t.Logf("%s is not there, want seq %d", key, v.Seq)
		}
	}
}
