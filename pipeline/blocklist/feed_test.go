package blocklist

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// gated is a Sink that a test can hold up.
type gated struct {
	*memory
	gate sync.Mutex
}

func (g *gated) Apply(shard int, changes []verdict.Verdict) {
	g.gate.Lock()
	defer g.gate.Unlock()
	g.memory.Apply(shard, changes)
}

func TestAFeedThatTheStreamWasTrimmedUnderTakesASnapshot(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := newBroker(t, 1), newMemory()
		p, _ := kafka.publisher(client, nil)
		p.Own(0)
		var gate sync.Mutex
		client.AddHook(&every{name: "xread", do: func() { gate.Lock(); defer gate.Unlock() }})
		feed, _ := startFeed(t, client, sink, nil)
		offer(p, kafka, record(block("0", 1, time.Hour)))
		eventually(t, "the feed follows", func() bool { return sink.has("uid=0|r") })

		gate.Lock() // the service doesn't get to read
		for i := range 100 {
			offer(p, kafka, record(block(fmt.Sprint(i), int64(i+2), time.Hour)))
		}
		eventually(t, "all are in Redis", func() bool { return p.Stats().Partitions[0].Reached == 101 })
		if err := client.XTrimMaxLen(t.Context(), "{tallygate:0}:changes", 3).Err(); err != nil {
			t.Fatal(err)
		}
		gate.Unlock()

		eventually(t, "all are blocked", func() bool { return len(sink.text()) == 100 })
		eventually(t, "a second snapshot was taken", func() bool { return feed.Stats().Snapshots == 2 && feed.Stats().Lost == 1 })
	})
}

func TestSnapshotsWhileChangesFlow(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka := newBroker(t, 1)
		p, _ := kafka.publisher(client, nil)
		p.Own(0)
		model := newMemory()
		offerAll := func(verdicts []verdict.Verdict) {
			records := make([]Record, len(verdicts))
			for i, v := range verdicts {
				records[i] = record(v)
			}
			offer(p, kafka, records...)
			model.Apply(0, verdicts)
		}
		size := most(t, 10_000)
		var all []verdict.Verdict
		for i := range size {
			all = append(all, block(fmt.Sprint(i), 0, time.Hour))
		}
		offerAll(all)

		var sinks []*memory
		for i := range 60 {
			if i%10 == 0 {
				sinks = append(sinks, newMemory())
				startFeed(t, client, sinks[len(sinks)-1], nil)
			}
			var some []verdict.Verdict
			for j := range 50 {
				uid := fmt.Sprint((i*997 + j*31) % size)
				if v := block(uid, int64(i+1), time.Hour); j%3 == 0 {
					some = append(some, clearing(uid, v.Seq))
				} else {
					some = append(some, v)
				}
			}
			offerAll(some)
		}
		want := model.text()
		for i, sink := range sinks {
			eventually(t, fmt.Sprintf("feed %d has what was published", i), func() bool { return slices.Equal(sink.text(), want) })
		}
	})
}

// TestARedisThatWasRestoredFromABackup checks that a feed never gives up a block because Redis doesn't
// know of it yet.
func TestARedisThatWasRestoredFromABackup(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := newBroker(t, 1), newMemory()
		p, stop := kafka.publisher(client, nil)
		p.Own(0)
		feed, _ := startFeed(t, client, sink, nil)
		offer(p, kafka, record(block("old", 1, time.Hour)))
		eventually(t, "it is blocked", func() bool { return sink.has("uid=old|r") })
		k := shardKeys("tallygate", 0)
		backup, err := client.HGetAll(t.Context(), k.verdicts).Result()
		if err != nil {
			t.Fatal(err)
		}
		offer(p, kafka, record(block("new", 1, time.Hour)))
		eventually(t, "it is blocked, too", func() bool { return sink.has("uid=new|r") })

		stop() // no publisher repairs it for now
		flush := func() {
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		flush()
		client.HSet(t.Context(), k.verdicts, maps.Clone(backup))
		eventually(t, "the feed has looked", func() bool { return feed.Stats().Partial > 0 })
		if got := len(sink.text()); got != 2 {
			t.Errorf("%d are blocked, want both", got)
		}
		p2, _ := kafka.publisher(client, nil)
		p2.Own(0)
		eventually(t, "a complete snapshot was taken", func() bool { return feed.Stats().Snapshots == 2 })
		if got := len(sink.text()); got != 2 || len(sink.dropped) > 0 {
			t.Errorf("%d are blocked, want both; dropped %v meanwhile", got, sink.dropped)
		}
	})
}

func TestAFeedWaitsUntilEveryPartitionWasFilled(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := newBroker(t, 2), newMemory()
		kafka.write(0, record(block("0", 1, time.Hour)))
		kafka.write(1, record(block("1", 1, time.Hour)))
		p, _ := kafka.publisher(client, func(c *PublisherConfig) { c.Partitions = 2 })
		feed, _ := startFeed(t, client, sink, nil)
		p.Own(0)
		eventually(t, "what there is is enforced", func() bool { return sink.has("uid=0|r") })
		if s := feed.Stats(); s.Snapshots != 0 || sink.appliedUpTo(0) != 0 {
			t.Errorf("complete snapshots %d, applied %d, want none before partition 1 has a publisher", s.Snapshots, sink.appliedUpTo(0))
		}
		p.Own(1)
		eventually(t, "the snapshot is complete", func() bool { return feed.Stats().Snapshots == 1 && sink.has("uid=1|r") })
	})
}

func TestHeartbeatsSayWhatIsApplied(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, sink := newBroker(t, 2), newMemory()
		a, stopA := kafka.publisher(client, func(c *PublisherConfig) { c.Partitions = 2 })
		b, _ := kafka.publisher(client, func(c *PublisherConfig) { c.Partitions = 2 })
		a.Own(0)
		b.Own(1)
		startFeed(t, client, sink, nil)
		begun := event.FromTime(time.Now())
		eventually(t, "both are applied", func() bool { return sink.appliedUpTo(0) > begun })
		stopA() // then the shard grows stale, though b goes on
		settled := event.FromTime(time.Now())
		eventually(t, "heartbeats go on", func() bool {
			m, _, err := readMeta(context.Background(), client, shardKeys("tallygate", 0))
			s, _ := client.HGet(context.Background(), "{tallygate:0}:verdicts", metaApplied+":1").Int64()
			return err == nil && m.applied > 0 && event.Micros(s) > settled+200*event.Millisecond
		})
		if got := sink.appliedUpTo(0); got > settled {
			t.Errorf("applied up to %v after partition 0 lost its publisher at %v", got, settled)
		}
	})
}

// TestAConnectionThatIsHalfOpen puts a proxy between feed and Redis that stops forwarding without a word.
func TestAConnectionThatIsHalfOpen(t *testing.T) {
	addr := realRedis(t)
	proxy := newProxy(t, addr)
	through := redis.NewClient(&redis.Options{Addr: proxy.addr, ReadTimeout: 300 * time.Millisecond, MaintNotificationsConfig: noNotices})
	t.Cleanup(func() { _ = through.Close() })
	kafka, sink := newBroker(t, 1), newMemory()
	p, _ := kafka.publisher(dial(t, addr), nil)
	p.Own(0)
	startFeed(t, through, sink, nil)
	offer(p, kafka, record(block("1", 1, time.Hour)))
	eventually(t, "1 is blocked", func() bool { return sink.has("uid=1|r") })
	proxy.freeze()
	offer(p, kafka, record(block("2", 1, time.Hour)))
	eventually(t, "2 is blocked", func() bool { return sink.has("uid=2|r") })
}

type proxy struct {
	addr string
	mu   sync.Mutex
	mute []chan struct{}
}

func newProxy(t *testing.T, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String()}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); _ = l.Close(); running.Wait() })
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				t.Error(err)
				return
			}
			mute := make(chan struct{})
			p.mu.Lock()
			p.mute = append(p.mute, mute)
			p.mu.Unlock()
			stop := context.AfterFunc(ctx, func() { _ = client.Close(); _ = server.Close() })
			running.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
			running.Go(func() {
				defer stop()
				defer client.Close()
				forward(client, server, mute)
			})
		}
	})
	return p
}

// forward copies until it is muted; then it swallows what comes.
func forward(dst io.Writer, src io.Reader, mute chan struct{}) {
	buf := make([]byte, 4096)
	for {
		n, err := src.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-mute:
		default:
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}

// freeze mutes all connections there are; new ones work.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, mute := range p.mute {
		close(mute)
	}
	p.mute = nil
}
