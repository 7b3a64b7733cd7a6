package blocklist

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// reader reads a blocklist for all feeds of this process that were given the same client and settings: each change is read once,
// and a snapshot serves all that wait for one. One of the feeds, the leader, has it run in its own Run; when that ends,
// another one's takes over where it was.
type reader struct {
	cfg      FeedConfig // the first feed's
	redis    outages
	answered atomic.Bool   // Redis has answered, and didn't refuse the password
	lead     chan struct{} // holds one element while a feed is the leader
	failed   chan struct{} // closed when err is set
	err      error
	shards   []*shardFeed

	// Sinks are called under members' read lock, so that none is once its feed's Run has returned.
	members sync.RWMutex
	list    []*member

	mu      sync.Mutex
	refused map[int]error // by shard
}

// member is a feed that is running.
type member struct {
	feed *Feed
	sink Sink
	// follows are the shards of which the sink has had a snapshot, and gets what changes; of others it waits for one.
	// Each is that shard's goroutine's.
	follows []bool
	asked   []uint64 // by shard: the sink's SnapshotsWanted before the latest snapshot
}

// wanted returns the sink's SnapshotsWanted; 0 when it has none.
func (m *member) wanted() uint64 {
	if sink, ok := m.sink.(interface{ SnapshotsWanted() uint64 }); ok {
		return sink.SnapshotsWanted()
	}
	return 0
}

// readerKey is what feeds must have in common to share a reader.
type readerKey struct {
	redis                    redis.UniversalClient
	prefix                   string
	shards                   int
	heartbeat, block, jitter time.Duration
}

func (c *FeedConfig) key() readerKey {
	return readerKey{c.Redis, c.Prefix, c.Shards, c.Heartbeat, c.Block, c.Jitter}
}

// readers are those that are in use.
var readers = struct {
	sync.Mutex
	by map[readerKey]*reader
}{by: map[readerKey]*reader{}}

func newReader(cfg FeedConfig) *reader {
	r := &reader{
		cfg: cfg, redis: outages{log: cfg.Logger, what: "following the blocklist in Redis", kind: troubleOf},
		lead: make(chan struct{}, 1), failed: make(chan struct{}), refused: map[int]error{},
	}
	for shard := range cfg.Shards {
		r.shards = append(r.shards, &shardFeed{r: r, shard: shard, keys: shardKeys(cfg.Prefix, shard), floor: 1})
	}
	return r
}

// join makes a feed a member of its reader, made when there is none. The returned function ends that.
func join(f *Feed, sink Sink) (r *reader, leave func()) {
	key := f.cfg.key()
	shared := reflect.TypeOf(f.cfg.Redis).Comparable()
	readers.Lock()
	defer readers.Unlock()
	if shared {
		r = readers.by[key]
	}
	if r == nil {
		r = newReader(f.cfg)
		if shared {
			readers.by[key] = r
		}
	}
	m := &member{feed: f, sink: sink, follows: make([]bool, f.cfg.Shards), asked: make([]uint64, f.cfg.Shards)}
	r.members.Lock()
	r.list = append(r.list, m)
	r.members.Unlock()
	return r, func() {
		readers.Lock()
		defer readers.Unlock()
		r.members.Lock()
		defer r.members.Unlock()
		r.list = slices.DeleteFunc(r.list, func(o *member) bool { return o == m })
		if len(r.list) == 0 && shared && readers.by[key] == r {
			delete(readers.by, key)
		}
	}
}

// fail ends the Run of all members with an error; a feed that is run later has a new reader.
func (r *reader) fail(err error) {
	readers.Lock()
	defer readers.Unlock()
	if r.err == nil {
		r.err = err
		close(r.failed)
	}
	if key := r.cfg.key(); reflect.TypeOf(r.cfg.Redis).Comparable() && readers.by[key] == r {
		delete(readers.by, key)
	}
}

// run reads, for all members, until ctx ends or Redis refuses the password.
func (r *reader) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for _, s := range r.shards {
		running.Go(func() {
			if err := s.run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	running.Wait()
	if err := context.Cause(ctx); errors.Is(err, ErrAuth) {
		r.fail(err)
		return err
	}
	return nil
}

func (r *reader) refuse(shard int, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused[shard] = why
}

// each calls do for each member; its feed's Run does not return meanwhile.
func (s *shardFeed) each(do func(*member)) {
	s.r.members.RLock()
	defer s.r.members.RUnlock()
	for _, m := range s.r.list {
		do(m)
	}
}

// following calls do for the sink of each member that follows the shard, and adds to the changes that it has had.
func (s *shardFeed) following(changes int, do func(Sink)) {
	s.each(func(m *member) {
		if m.follows[s.shard] {
			do(m.sink)
			m.feed.count(func(st *FeedStats) { st.Changes += uint64(changes) })
		}
	})
}

// waiting reports whether a member waits for a snapshot of the shard: it is new, or its sink has asked for one.
func (s *shardFeed) waiting() (some bool) {
	s.each(func(m *member) {
		if m.follows[s.shard] && m.wanted() != m.asked[s.shard] {
			m.follows[s.shard] = false
			s.r.cfg.Logger.Info("taking a new snapshot of the blocklist", "shard", s.shard, "reason", "the clock made a step")
		}
		some = some || !m.follows[s.shard]
	})
	return some
}

// letWait has all members wait for a snapshot.
func (s *shardFeed) letWait() { s.each(func(m *member) { m.follows[s.shard] = false }) }

// turns lets one scan be in memory at a time in this process, whichever blocklists it follows.
type turns struct {
	mu     sync.Mutex
	holder *scan
	moved  time.Time // when the holder last got on
}

// stuck is how long a scan may stand still, as when its server doesn't answer, before others don't wait for it any more.
const stuck = 5 * time.Second

var scanning turns

// take reports whether it is the scan's turn; one that has it says so again as it gets on.
func (t *turns) take(s *scan) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder != nil && t.holder != s && time.Since(t.moved) < stuck {
		return false
	}
	t.holder, t.moved = s, time.Now()
	return true
}

func (t *turns) release(s *scan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder == s {
		t.holder = nil
	}
}
