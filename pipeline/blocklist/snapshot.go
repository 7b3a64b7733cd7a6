package blocklist

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
	"github.com/tallygate/tallygate/verdict"
)

// scan is a snapshot under way. Between the pages of the hash it is told all that the stream
// brings, so the stream need keep only what comes while a page is read, however long the whole
// takes and however much is written meanwhile: a snapshot that read the stream when it had the hash
// found it trimmed, took another one, and never got done while much was written.
type scan struct {
	conn   redis.Cmdable
	done   func() // gives conn back
	cursor uint64
	all    map[string]verdict.Verdict
	// beat is the latest heartbeat of the stream since the scan began, and at is its number.
	beat event.Micros
	at   uint64

	// Who reads or still has to take it in; when there is none, another scan may begin.
	users atomic.Int32
}

// used notes that one of its users is done. Nothing happens to nil.
func (c *scan) used() {
	if c == nil {
		return
	}
	if c.users.Add(-1) == 0 {
		scanning.release(c)
	} else {
		scanning.moves(c)
	}
}

// begin sets out for a snapshot. Unless a place is followed, the stream counts from what the meta
// say before the hash is read.
func (s *shardFeed) begin(ctx context.Context, next *scan) (err error) {
	// The first question also makes a connection that the pool has at hand then.
	if _, err := s.meta(ctx, s.r.cfg.Redis); err != nil {
		return err
	}
	if next.conn, next.done, err = oneConnection(ctx, s.r.cfg.Redis, s.keys.Verdicts); err != nil {
		return fmt.Errorf("connect to read %s: %w", s.keys.Verdicts, err)
	}
	before, err := s.meta(ctx, next.conn)
	if err != nil {
		next.done()
		return err
	}
	if !s.follows {
		s.place = before.Place
	}
	if !s.complete { // then it is for all: who follows has had a part only
		s.letWait()
	}
	next.all, s.scan = map[string]verdict.Verdict{}, next
	next.users.Store(1)
	return nil
}

// abandon ends the scan under way.
func (s *shardFeed) abandon() {
	if s.scan != nil {
		s.scan.done()
		s.scan.used()
		s.scan = nil
	}
}

// readsPerPage bounds how often the stream is read behind a page of the hash.
const readsPerPage = 3

// goOn reads a page of the hash and then what the stream has, or, when all of the hash was read,
// hands the snapshot on.
func (s *shardFeed) goOn(ctx context.Context) error {
	scanning.take(s.scan)
	more, err := s.page(ctx)
	switch {
	case err == nil && more:
		// Not until there is nothing left: while much is written that may never be, and the hash
		// would have to wait for it.
		reads := 0
		err = s.drain(ctx, func(entries []redis.XMessage) bool { reads++; return len(entries) < readCount || reads == readsPerPage })
	case err == nil:
		err = s.finish(ctx)
	}
	if err != nil {
		return fmt.Errorf("take a snapshot of %s: %w", s.keys.Verdicts, err)
	}
	if !more {
		s.abandon()
	}
	return nil
}

// page reads some of the hash. What changes meanwhile may be there as it was or as it is. Of what
// the stream said before, a page is the later word, and of what it says after, the earlier: seq
// tells for verdicts, and removals come again.
func (s *shardFeed) page(ctx context.Context) (more bool, err error) {
	fields, next, err := s.scan.conn.HScan(ctx, s.keys.Verdicts, s.scan.cursor, "", readCount).Result()
	if err != nil {
		return false, fmt.Errorf("scan %s: %w", s.keys.Verdicts, err)
	}
	for i := 0; i+1 < len(fields); i += 2 {
		if strings.HasPrefix(fields[i], layout.MetaPrefix) {
			continue
		}
		v, err := verdict.Parse([]byte(fields[i+1]))
		if err != nil {
			s.r.skip(s.shard, s.keys.Verdicts, err)
			continue
		}
		s.scan.put(fields[i], v)
	}
	s.scan.cursor = next
	return next != 0, nil
}

func (c *scan) put(key string, v verdict.Verdict) {
	if held, ok := c.all[key]; !ok || held.Seq < v.Seq {
		c.all[key] = v
	}
}

// change applies the stream's entry n.
func (c *scan) change(is change, n uint64) {
	switch {
	case is.key == "":
		c.beat, c.at = is.applied, n
	case !is.blocks:
		delete(c.all, is.key)
	default:
		c.put(is.key, is.verdict)
	}
}

// drain takes what the stream has, without waiting, until enough says so of what came last.
func (s *shardFeed) drain(ctx context.Context, enough func([]redis.XMessage) bool) error {
	for ctx.Err() == nil {
		entries, err := s.read(ctx, s.place, -1)
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			if err := s.take(ctx, entries); err != nil {
				return err
			}
		}
		if enough(entries) {
			return nil
		}
	}
	return ctx.Err()
}

// finish follows the stream up to what the meta say now that the hash was read: then the scan has
// all. It ends with errLost when they don't follow the place.
func (s *shardFeed) finish(ctx context.Context) error {
	now, err := s.meta(ctx, s.scan.conn)
	if err != nil {
		return err
	}
	if at := s.place; at.Epoch != now.Epoch || at.N > now.N || at.N == now.N && at.Stamp != now.Stamp {
		return fmt.Errorf("%w: it is %s, and the blocklist is at another %s", errLost, at.ID(), now.ID())
	}
	if s.place.N < now.N {
		another := false
		err = s.drain(ctx, func(entries []redis.XMessage) bool {
			another = another || slices.ContainsFunc(entries, func(e redis.XMessage) bool { return e.ID == now.ID() && e.Values["s"] != now.Stamp })
			return len(entries) == 0 || s.place.N >= now.N
		})
		switch {
		case err != nil:
			return err
		case another:
			return fmt.Errorf("%w: the stream has another %s", errLost, now.ID())
		case s.place.N < now.N:
			return fmt.Errorf("%w: nothing follows %s, and the blocklist is at %s", errLost, s.place.ID(), now.ID())
		}
	}
	s.completed(now)
	return nil
}

// completed notes that the scan has all, up to now at least.
func (s *shardFeed) completed(now layout.Meta) {
	applied, seen := now.Applied, now.Applied
	if s.scan.at > now.N {
		applied, seen = s.scan.beat, s.scan.beat
	} else if now.Beat > 0 { // a clock may be ahead, so it may be in the future
		seen = min(seen, now.Beat)
	}
	s.complete = s.isComplete(applied)
	s.follows, s.linked = true, false
	s.heard, s.suspect = time.Now(), false
	s.serve(max(seen, s.scan.beat))
	s.worked()
}

// serve gives the snapshot to all who wait for one. A complete one replaces what they have. An
// incomplete one adds to it: the blocklist is being filled again, and what is missing from it may
// well be in force.
func (s *shardFeed) serve(seen event.Micros) {
	all := make([]verdict.Verdict, 0, len(s.scan.all))
	for _, v := range s.scan.all {
		all = append(all, v)
	}
	s.scan.all = nil
	d := &delivery{steps: []step{{verdicts: all}}, applied: seen, shared: s.scan, replace: s.complete}
	s.each(func(b *mailbox) { b.begin(d) })
}

// meta reads the shard's meta; it is an error when there is none.
func (s *shardFeed) meta(ctx context.Context, conn redis.Cmdable) (layout.Meta, error) {
	m, found, err := layout.ReadMeta(ctx, conn, s.keys)
	if err != nil {
		return layout.Meta{}, err
	}
	s.r.answered.Store(true)
	if !found {
		return layout.Meta{}, fmt.Errorf("%s: %w", s.keys.Verdicts, failure.ErrNothing)
	}
	return m, s.judge(m)
}

// judge refuses a blocklist of another number of shards.
func (s *shardFeed) judge(m layout.Meta) (err error) {
	if shards := max(s.r.cfg.Shards, 1); m.Shards != 0 && m.Shards != shards {
		err = layout.ShardsDiffer(s.keys.Verdicts, m.Shards, shards)
	}
	s.r.refuse(s.shard, err)
	return err
}

// oneConnection returns a connection to the server that has the key; what is asked over it fails
// once it is broken, and done gives it back. A cursor means something to the process that gave it
// only: after a restart or a failover, a scan that went on would miss entries, and nothing else
// would tell.
func oneConnection(ctx context.Context, client redis.UniversalClient, key string) (conn redis.Cmdable, done func(), err error) {
	var server *redis.Client
	switch c := client.(type) {
	case *redis.Client:
		server = c
	case *redis.ClusterClient:
		if server, err = c.MasterForKey(ctx, key); err != nil {
			return nil, nil, err
		}
	default: // its connections are its own business
		return client, func() {}, nil
	}
	sticky := server.Conn()
	return sticky, func() { _ = sticky.Close() }, nil // back to its pool: there is nothing to fail
}
