package blocklist

import (
	"cmp"
	"context"
	"math/rand/v2"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/store"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// flood writes verdicts to a blocklist of one partition, so many a second.
type flood struct {
	t       *testing.T
	redis   redis.UniversalClient
	writes  *store.Store
	uids    []string
	at, seq int64
	blocked map[string]bool
	r       *rand.Rand
}

// write applies a batch, however often Redis is away meanwhile.
func (f *flood) write(records []publish.Record) {
	f.t.Helper()
	next := f.at + int64(len(records))
	testrun.Eventually(f.t, "a batch is applied", func() bool {
		b := store.Batch{Start: f.at, Next: next, Applied: event.FromTime(time.Now()), Records: records}
		reached, ok, err := f.writes.Apply(context.Background(), b)
		// Reached: it was applied, and the answer was lost.
		return err == nil && (ok || reached == next)
	})
	f.at = next
}

// some are changes of random keys: most are blocked, a few cleared or removed.
func (f *flood) some(n int) (records []publish.Record) {
	for range n {
		uid := f.uids[f.r.IntN(len(f.uids))]
		f.seq++
		kind := f.r.IntN(10)
		switch f.blocked[uid] = kind > 1; kind {
		case 0:
			records = append(records, rig.Record(rig.Clearing(uid, f.seq)))
		case 1:
			records = append(records, rig.Tombstone(rig.Block(uid, 0, 0)))
		default:
			records = append(records, rig.Record(rig.Block(uid, f.seq, time.Hour)))
		}
	}
	return records
}

// run writes at a rate for a while, with pauses of 10 ms; it returns how many it wrote.
func (f *flood) run(rate int, length time.Duration) (written int) {
	began := time.Now()
	for time.Since(began) < length {
		if due := int(time.Since(began).Seconds() * float64(rate)); due > written {
			f.write(f.some(min(due-written, 500)))
			written = min(due, written+500)
		} else {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return written
}

// overload is a flood, and tables that begin to follow in its middle.
type overload struct {
	rate, keys, tables int
	streamLen          int64
	length             time.Duration
	clients            func() redis.UniversalClient // of a table's feed
}

// overloadLength is TALLYGATE_TEST_OVERLOAD, 4 s when it is not set.
func overloadLength(t *testing.T) time.Duration {
	t.Helper()
	length, err := time.ParseDuration(cmp.Or(os.Getenv("TALLYGATE_TEST_OVERLOAD"), "4s"))
	if err != nil {
		t.Fatal(err)
	}
	return length
}

// TestFiftyFeedsDuringAFlood: 10,000 verdicts a second for TALLYGATE_TEST_OVERLOAD (4s when it is
// not set); fifty tables begin to follow in the middle, later Redis is killed, and all are in step
// within ten seconds after the end. With 65,536 entries in the stream, a burst trimmed it faster
// than snapshots finished: all lost their place again and again, and after ten minutes they were
// still stale, at 3.8 GB. A short run has a stream that is as much shorter.
func TestFiftyFeedsDuringAFlood(t *testing.T) {
	o := overload{rate: 10_000, keys: 10_000, tables: 50, streamLen: 2_000, length: overloadLength(t)}
	if o.length > time.Minute {
		o.keys, o.streamLen = 100_000, 1<<16
	}
	server := servers.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	client := rig.Dial(t, server.Addr())
	o.clients = func() redis.UniversalClient { return client }
	o.run(t, server)
}

// TestFeedsWithClientsOfTheirOwnDuringAFlood: each reads for itself, as processes do, so two cores
// take fewer verdicts a second; but they take their snapshots one after another.
func TestFeedsWithClientsOfTheirOwnDuringAFlood(t *testing.T) {
	o := overload{rate: 500, keys: 1_000, tables: 10, streamLen: 500, length: overloadLength(t) / 2}
	if o.length > 10*time.Second {
		o.keys, o.tables, o.streamLen = 10_000, 50, 10_000
	}
	server := servers.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	o.clients = func() redis.UniversalClient { return rig.Dial(t, server.Addr()) }
	o.run(t, server)
}

func (o *overload) run(t *testing.T, server *servers.RedisProc) {
	f := &flood{t: t, redis: rig.Dial(t, server.Addr()), uids: rig.UIDs("u", o.keys), blocked: map[string]bool{}, r: rand.New(rand.NewPCG(1, 2))}
	f.writes = rig.NewStore(t, f.redis)
	f.writes.StreamLength, f.writes.BeatMillis = o.streamLen, 1000
	for from := 0; from < o.keys; from += 500 {
		var records []publish.Record
		for _, uid := range f.uids[from:min(from+500, o.keys)] {
			records = append(records, rig.Record(rig.Block(uid, 0, time.Hour)))
			f.blocked[uid] = true
		}
		f.write(records)
	}
	written := f.run(o.rate, o.length/2)
	tables, feeds := o.follow(t)
	peak := watchHeap(t)
	written += f.run(o.rate, o.length/4)
	server.Kill()
	server.Start()
	written += f.run(o.rate, o.length/4)
	end, cpu := time.Now(), cpuTime()
	beats := testrun.Start(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			f.write(nil)
			retry.Sleep(ctx, time.Second)
		}
		return nil
	})
	for _, table := range tables {
		// By its heartbeats alone it may be before that: after a lost place it keeps what a
		// snapshot lacks until there is a complete one.
		testrun.Eventually(t, "a table is in step", func() bool {
			return table.Ready() && time.Since(end) > table.Staleness() && f.differ(table) == 0
		})
	}
	took, used := time.Since(end), cpuTime()-cpu
	heap := peak()
	beats()
	f.compareRedis()
	bytes, most := 0, FeedStats{}
	for i, table := range tables {
		bytes += table.Bytes()
		s := feeds[i].Stats()
		most.Snapshots, most.Lost = max(most.Snapshots, s.Snapshots), max(most.Lost, s.Lost)
	}
	t.Logf("%d verdicts in %v, %d keys, all %d in step %v after it (%v of CPU); tables %d MiB, heap at most %d MiB; at most %d snapshots a feed, %d places lost",
		written, o.length, o.keys, o.tables, took.Round(time.Millisecond), used.Round(time.Millisecond), bytes>>20, heap>>20, most.Snapshots, most.Lost)
	if took > 10*time.Second && o.length > time.Minute {
		t.Errorf("it took %v until all were in step, want 10s at most", took)
	}
	// A verdict of a snapshot takes some 600 bytes; the collector lets the heap grow to twice what
	// lives.
	if limit := 2 * (bytes + o.keys*600 + 64<<20); heap > limit {
		t.Errorf("the heap grew to %d MiB, want %d at most: one snapshot at a time", heap>>20, limit>>20)
	}
}

// cpuTime returns this process' CPU time, which other load changes less than the time on the clock.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (o *overload) follow(t *testing.T) (tables []*enforce.Table, feeds []*Feed) {
	for range o.tables {
		table, err := enforce.NewTable(enforce.Config{})
		if err != nil {
			t.Fatal(err)
		}
		feed, _ := startFeed(t, o.clients(), table, func(c *FeedConfig) { c.Heartbeat, c.Block = time.Second, 200*time.Millisecond })
		tables, feeds = append(tables, table), append(feeds, feed)
	}
	return tables, feeds
}

// differ returns how many keys a table has not as they were published.
func (f *flood) differ(table *enforce.Table) (wrong int) {
	now := event.FromTime(time.Now())
	for uid, blocked := range f.blocked {
		if table.CheckAt(now, "any", uid).Allowed == blocked {
			wrong++
		}
	}
	return wrong
}

// compareRedis tells a mistake of the flood from one of the feeds.
func (f *flood) compareRedis() {
	f.t.Helper()
	fields, err := f.redis.HGetAll(f.t.Context(), layout.KeysOf("tallygate", 0).Verdicts).Result()
	if err != nil {
		f.t.Fatal(err)
	}
	wrong := 0
	for uid, blocked := range f.blocked {
		v, err := verdict.Parse([]byte(fields["uid="+uid+"|r"]))
		if blocked != (err == nil && v.State == verdict.Block) {
			wrong++
		}
	}
	if wrong > 0 {
		f.t.Fatalf("%d of %d keys are not in Redis as they were published", wrong, len(f.blocked))
	}
}

// watchHeap looks at the heap until the returned function is called, which returns the most that it
// was.
func watchHeap(t *testing.T) (peak func() int) {
	most := 0
	stop := testrun.Start(t, func(ctx context.Context) error {
		for ok := true; ok; ok = retry.Sleep(ctx, 50*time.Millisecond) {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, int(m.HeapAlloc))
		}
		return nil
	})
	return func() int { stop(); return most }
}

// TestFeedsOfOneClientShareAReader: what is read is read once, whoever leads, and a feed that comes
// late or leaves early changes nothing for the others.
func TestFeedsOfOneClientShareAReader(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka := rig.NewBroker(t, 1)
		p, _ := startPublisher(t, kafka, client, nil)
		p.Own(0)
		rig.Offer(p, kafka, rig.Record(rig.Block("0", 1, time.Hour)))
		var sinks []*rig.Memory
		var stops []func()
		var feeds []*Feed
		for range 3 {
			sinks = append(sinks, rig.NewMemory())
			feed, stop := startFeed(t, client, sinks[len(sinks)-1], nil)
			stops, feeds = append(stops, stop), append(feeds, feed)
		}
		has := func(sinks []*rig.Memory, uid string) func() bool {
			return func() bool {
				for _, s := range sinks {
					if !s.Has("uid=" + uid + "|r") {
						return false
					}
				}
				return true
			}
		}
		testrun.Eventually(t, "all follow", has(sinks, "0"))
		if feeds[0].reader.Load() != feeds[2].reader.Load() {
			t.Error("each reads for itself")
		}
		stops[0]() // one of them led
		held := sinks[0].Text()
		rig.Offer(p, kafka, rig.Record(rig.Block("1", 1, time.Hour)))
		testrun.Eventually(t, "the others go on", has(sinks[1:], "1"))
		late := rig.NewMemory()
		_, stopLate := startFeed(t, client, late, nil)
		testrun.Eventually(t, "one that comes late has all", func() bool { return has([]*rig.Memory{late}, "0")() && has([]*rig.Memory{late}, "1")() })
		if got := sinks[0].Text(); len(got) != len(held) {
			t.Errorf("a sink whose feed has returned got %v", got)
		}
		for i, f := range feeds[1:] {
			if s := f.Stats(); s.Snapshots != 1 || s.Lost != 0 {
				t.Errorf("feed %d took more than a snapshot when others came and left: %+v", i+1, s)
			}
		}
		stopLate()
		for _, stop := range stops {
			stop()
		}
		readers.Lock()
		defer readers.Unlock()
		if len(readers.by) != 0 {
			t.Errorf("%d readers are left without feeds", len(readers.by))
		}
	})
}
