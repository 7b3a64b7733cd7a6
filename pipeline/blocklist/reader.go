package blocklist

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/base/logonce"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
)

// reader reads a blocklist for all feeds of this process that were given the same client and
// settings: each change is read once, and a snapshot serves all that wait for one. One of the
// feeds, the leader, has it run in its own Run; when that ends, another one's takes over where it
// was.
type reader struct {
	cfg      FeedConfig // the first feed's
	redis    failure.Outages
	answered atomic.Bool   // Redis has answered, and didn't refuse us
	lead     chan struct{} // holds one element while a feed is the leader
	shards   []*shardFeed

	members sync.RWMutex
	list    []*member

	noVerdicts logonce.Line // entries that are no verdict

	mu      sync.Mutex
	refused map[int]error // by shard
}

// skip logs a malformed entry of the blocklist, at most once a minute.
func (r *reader) skip(shard int, entry string, err error) {
	if leftOut, due := r.noVerdicts.Due(); due {
		r.cfg.Logger.Error("skipping a malformed entry of the blocklist; further ones are not logged for a minute",
			"shard", shard, "entry", entry, "error", err, "left_out", leftOut)
	}
}

// member is a feed that is running: a mailbox for each shard.
type member struct{ boxes []*mailbox }

func newMember(f *Feed, sink Sink, shards int) *member {
	m := &member{}
	for shard := range shards {
		m.boxes = append(m.boxes, newMailbox(f, sink, shard))
	}
	return m
}

// readerKey identifies the feeds that may share a reader.
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

// newOutages tells of a Redis that cannot be read.
func newOutages(cfg *FeedConfig) failure.Outages {
	return failure.Outages{Log: cfg.Logger, What: "following the blocklist in Redis", Kind: failure.Of}
}

func newReader(cfg FeedConfig) *reader {
	r := &reader{cfg: cfg, redis: newOutages(&cfg), lead: make(chan struct{}, 1), refused: map[int]error{}}
	for shard := range cfg.Shards {
		r.shards = append(r.shards, &shardFeed{r: r, shard: shard, keys: layout.KeysOf(cfg.Prefix, shard), floor: 1})
	}
	return r
}

// join makes a feed a member of its reader, made when there is none. leave ends that.
func join(f *Feed, cfg *FeedConfig, sink Sink) (r *reader, m *member, leave func()) {
	key := cfg.key()
	shared := reflect.TypeOf(cfg.Redis).Comparable()
	readers.Lock()
	defer readers.Unlock()
	if shared {
		r = readers.by[key]
	}
	if r == nil {
		r = newReader(*cfg)
		if shared {
			readers.by[key] = r
		}
	}
	m = newMember(f, sink, cfg.Shards)
	r.members.Lock()
	r.list = append(r.list, m)
	r.members.Unlock()
	return r, m, func() {
		readers.Lock()
		defer readers.Unlock()
		r.members.Lock()
		defer r.members.Unlock()
		r.list = slices.DeleteFunc(r.list, func(o *member) bool { return o == m })
		if len(r.list) == 0 && shared && readers.by[key] == r {
			delete(readers.by, key)
		}
		for _, b := range m.boxes {
			b.close()
		}
	}
}

// run reads, for all members, until ctx ends.
func (r *reader) run(ctx context.Context) {
	var running sync.WaitGroup
	for _, s := range r.shards {
		running.Go(func() { s.run(ctx) })
	}
	running.Wait()
}

func (r *reader) refuse(shard int, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused[shard] = why
}

// each calls do for the mailbox of each member.
func (s *shardFeed) each(do func(*mailbox)) {
	s.r.members.RLock()
	defer s.r.members.RUnlock()
	for _, m := range s.r.list {
		do(m.boxes[s.shard])
	}
}

// hand puts what the stream brought into the mailboxes of those who follow.
func (s *shardFeed) hand(d *delivery) {
	if len(d.steps) == 0 && d.applied == 0 {
		return
	}
	s.each(func(b *mailbox) {
		if b.put(d) {
			b.feed.count(func(st *FeedStats) { st.Lost++ })
			s.r.cfg.Logger.Warn("a table of verdicts applies changes more slowly than they arrive; it will get a snapshot instead", "shard", s.shard)
		}
	})
}

// waiting reports whether a member waits for a snapshot of the shard: it is new, it was too slow,
// or its sink has asked for one.
func (s *shardFeed) waiting() (some bool) {
	s.each(func(b *mailbox) {
		needs, asked := b.needs()
		if asked {
			s.r.cfg.Logger.Info("taking a new snapshot of the blocklist", "shard", s.shard, "reason", "the clock jumped")
		}
		some = some || needs
	})
	return some
}

// letWait has all members wait for a snapshot.
func (s *shardFeed) letWait() { s.each(func(b *mailbox) { b.letWait() }) }

// turns lets one scan be in memory at a time in this process, whichever blocklists it follows.
type turns struct {
	mu     sync.Mutex
	holder *scan
	moved  time.Time // when the holder last got on
}

// stuck is the time after which others don't wait any more for a scan that stands still, as when its server doesn't
// answer or a sink doesn't return.
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

// moves notes that the scan gets on, if it has the turn.
func (t *turns) moves(s *scan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder == s {
		t.moved = time.Now()
	}
}

func (t *turns) release(s *scan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder == s {
		t.holder = nil
	}
}
