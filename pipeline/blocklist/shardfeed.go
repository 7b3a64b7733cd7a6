package blocklist

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// shardFeed follows one shard. Its place is that of the last entry whose content the sink has.
type shardFeed struct {
	f     *Feed
	shard int
	keys  keys
	sink  Sink

	place    place
	heard    time.Time    // when anything last came
	suspect  bool         // the meta named another place, and nothing came since
	complete bool         // the sink has had a complete snapshot, and nothing was lost since
	floor    event.Micros // a snapshot is complete when it is applied up to this moment
	linked   bool         // since the floor the sink has followed the stream to place: a snapshot must come behind that
	asked    uint64       // the sink's SnapshotsWanted before the latest snapshot
}

var (
	// errLost says that what comes next in the stream is not what follows the feed's place.
	errLost = errors.New("the place in the stream is lost")
	// errComplete says that the blocklist, of which the sink has had a part, is complete.
	errComplete = errors.New("the blocklist is complete")
	// errAsked says that the sink wants a snapshot.
	errAsked = errors.New("the clock made a step")
)

const readCount = 1000 // entries, or fields, of one reading

// run returns when ctx ends, and with ErrAuth when Redis does not let it in.
func (s *shardFeed) run(ctx context.Context) error {
	defer s.f.redis.gone(int32(s.shard))
	s.floor = 1
	var pause backoff
	for ctx.Err() == nil {
		if err := s.snapshot(ctx); err != nil {
			if redis.IsAuthError(err) && !s.f.answered.Load() {
				return fmt.Errorf("%w: %w", ErrAuth, err)
			}
			if ctx.Err() == nil {
				s.failed(err)
				pause.wait(ctx)
			}
			continue
		}
		pause.reset()
		err := s.follow(ctx)
		switch {
		case errors.Is(err, errLost):
			s.lost(err)
		case errors.Is(err, errAsked):
			s.f.cfg.Logger.Info("taking a new snapshot of the blocklist", "shard", s.shard, "reason", err)
		}
		if s.f.cfg.Jitter > 0 && ctx.Err() == nil {
			sleep(ctx, rand.N(s.f.cfg.Jitter))
		}
	}
	return nil
}

// wanted returns the sink's SnapshotsWanted; 0 when it has none.
func (s *shardFeed) wanted() uint64 {
	if sink, ok := s.sink.(interface{ SnapshotsWanted() uint64 }); ok {
		return sink.SnapshotsWanted()
	}
	return 0
}

// lost notes that what the sink has need not be in the blocklist any more.
func (s *shardFeed) lost(reason error) {
	s.complete, s.linked = false, false
	s.floor = event.FromTime(time.Now())
	s.f.count(func(st *FeedStats) { st.Lost++ })
	s.f.cfg.Logger.Warn("taking a new snapshot of the blocklist", "shard", s.shard, "reason", reason)
}

func (s *shardFeed) failed(err error) { s.f.redis.failed(int32(s.shard), err) }

func (s *shardFeed) worked() { s.f.redis.worked(int32(s.shard)) }

// isComplete reports whether what is applied up to this moment may replace what the sink has. A
// publisher's clock may run behind this one for a while, and what is older adds to the sink only.
func (s *shardFeed) isComplete(applied event.Micros) bool { return applied >= s.floor }

// follow hands on what comes, until ctx ends, the place is lost, the sink wants a snapshot or, after an incomplete one, the
// blocklist is complete.
func (s *shardFeed) follow(ctx context.Context) error {
	var pause backoff
	s.heard, s.suspect = time.Now(), false
	for ctx.Err() == nil {
		if s.wanted() != s.asked {
			return errAsked
		}
		entries, err := s.read(ctx, s.place, s.f.cfg.Block)
		if err == nil {
			err = s.take(ctx, entries)
		}
		switch {
		case errors.Is(err, errLost), errors.Is(err, errComplete):
			return err
		case err == nil:
			s.worked()
			pause.reset()
		case ctx.Err() == nil:
			s.failed(err)
			pause.wait(ctx)
		}
	}
	return nil
}

func (s *shardFeed) take(ctx context.Context, entries []redis.XMessage) error {
	if len(entries) == 0 {
		return s.missed(ctx)
	}
	s.heard, s.suspect = time.Now(), false
	out := delivery{s: s}
	err := s.walk(&s.place, entries, out.change)
	out.flush()
	if err == nil && out.applied > 0 {
		s.sink.Heartbeat(s.shard, out.applied)
		if !s.complete && s.isComplete(out.applied) {
			s.linked = true
			return errComplete
		}
	}
	return err
}

// missed looks, when three heartbeats didn't come, whether the meta still names the feed's place. If it is ahead, the
// stream is read once more before the place counts as lost.
func (s *shardFeed) missed(ctx context.Context) error {
	if !s.suspect && time.Since(s.heard) < 3*s.f.cfg.Heartbeat {
		return nil
	}
	m, found, err := readMeta(ctx, s.f.cfg.Redis, s.keys)
	switch {
	case err != nil:
		return err
	case found && s.judge(m) != nil:
		return fmt.Errorf("%w: %w", errLost, s.judge(m))
	case found && m.place == s.place:
		s.heard, s.suspect = time.Now(), false
		return nil
	case found && m.epoch == s.place.epoch && m.n > s.place.n && !s.suspect:
		s.suspect = true
		return nil
	}
	return fmt.Errorf("%w: it is %s, and the blocklist is at %s", errLost, s.place.id(), m.id())
}

// read returns the stream's entries behind a place; none when nothing came within block.
// A negative block doesn't wait.
func (s *shardFeed) read(ctx context.Context, after place, block time.Duration) ([]redis.XMessage, error) {
	args := []any{"xread", "count", readCount}
	if block >= 0 {
		args = append(args, "block", block.Milliseconds())
	}
	// XRead of the client would add ten seconds to the read timeout of a blocking command, and so take that
	// long to notice a connection that is only half open.
	cmd := redis.NewXStreamSliceCmd(ctx, append(args, "streams", s.keys.changes, after.id())...)
	cmd.SetFirstKeyPos(int8(len(args) + 1))
	err := s.f.cfg.Redis.Process(ctx, cmd)
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.keys.changes, err)
	}
	if streams := cmd.Val(); len(streams) > 0 {
		return streams[0].Messages, nil
	}
	return nil, nil
}

// change is what an entry of the stream says: a verdict, a removal, or, without a key, a heartbeat.
type change struct {
	key     string
	verdict *verdict.Verdict // nil when it was removed
	applied event.Micros
}

// walk hands each entry on that follows at, and moves it along. It ends with errLost at one that doesn't follow.
func (s *shardFeed) walk(at *place, entries []redis.XMessage, do func(change)) error {
	for _, e := range entries {
		text := func(field string) string {
			v, _ := e.Values[field].(string)
			return v
		}
		if !at.follows(e.ID, text("p")) {
			return fmt.Errorf("%w: entry %s does not follow %s", errLost, e.ID, at.id())
		}
		at.n++
		at.stamp = text("s")
		c := change{key: text("k")}
		if c.key == "" {
			applied, _ := strconv.ParseInt(text("h"), 10, 64) // 0 for what a later version may add
			c.applied = event.Micros(applied)
		} else if value := text("v"); value != "" {
			v, err := verdict.Parse([]byte(value))
			if err != nil {
				s.f.cfg.Logger.Error("skipping an entry of the blocklist that is no verdict", "shard", s.shard, "id", e.ID, "error", err)
				continue
			}
			c.verdict = &v
		}
		do(c)
	}
	return nil
}

// delivery hands changes to the sink, as many at once as possible.
type delivery struct {
	s       *shardFeed
	pending []verdict.Verdict
	applied event.Micros
}

func (d *delivery) change(c change) {
	switch {
	case c.key == "":
		d.applied = c.applied
		return
	case c.verdict != nil:
		d.pending = append(d.pending, *c.verdict)
	case d.s.complete: // else it may be older than what the sink has, which it can't tell; the next snapshot does
		d.flush()
		d.s.sink.Remove(d.s.shard, []byte(c.key))
	}
	d.s.f.count(func(st *FeedStats) { st.Changes++ })
}

func (d *delivery) flush() {
	if len(d.pending) > 0 {
		d.s.sink.Apply(d.s.shard, d.pending)
		d.pending = nil
	}
}
