package blocklist

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
	"github.com/tallygate/tallygate/verdict"
)

// shardFeed follows one shard, for all members of its reader. Its place is that of the last entry
// whose content those have who follow, and the scan that is under way.
type shardFeed struct {
	r     *reader
	shard int
	keys  layout.Keys

	place    layout.Place
	heard    time.Time    // when anything last came
	suspect  bool         // the meta named another place, and nothing came since
	follows  bool         // place means something: it is followed, and was not lost since
	complete bool         // who follows has had a complete snapshot, and nothing was lost since
	floor    event.Micros // a snapshot is complete when it is applied up to this moment
	// Since the floor the stream was followed to place: a snapshot must come behind that.
	linked bool
	scan   *scan // under way; nil: none is
}

var (
	// errLost says that what comes next in the stream is not what follows the feed's place.
	errLost = errors.New("the place in the stream is lost")
	// errComplete says that the blocklist, of which the sinks have had a part, is complete.
	errComplete = errors.New("the blocklist is complete")
)

const readCount = 1000 // entries, or fields, of one reading

// run returns when ctx ends.
func (s *shardFeed) run(ctx context.Context) {
	defer s.r.redis.Gone(int32(s.shard))
	defer s.abandon()
	pause := failure.NewPause()
	s.heard, s.suspect = time.Now(), false
	for ctx.Err() == nil {
		err := s.step(ctx)
		switch {
		case err == nil:
			pause.Reset()
			continue
		case errors.Is(err, errComplete):
			s.linked = true
			s.letWait()
			s.jitter(ctx)
			continue
		}
		s.abandon()
		switch {
		case errors.Is(err, errLost) && s.follows:
			s.lost(err)
			s.jitter(ctx)
		case ctx.Err() == nil:
			s.failed(err)
			pause.Wait(ctx)
		}
	}
}

func (s *shardFeed) jitter(ctx context.Context) {
	if s.r.cfg.Jitter > 0 {
		retry.Sleep(ctx, rand.N(s.r.cfg.Jitter))
	}
}

// turnEvery is the interval between looks of a scan that waits for its turn.
const turnEvery = 20 * time.Millisecond

// step reads once: a page of the hash and what the stream has meanwhile, when a feed waits for a
// snapshot; else what the stream brings.
func (s *shardFeed) step(ctx context.Context) error {
	if s.scan == nil && (!s.follows || s.waiting()) {
		next := &scan{}
		switch {
		case scanning.take(next):
			if err := s.begin(ctx, next); err != nil {
				scanning.release(next)
				return err
			}
		case !s.follows:
			retry.Sleep(ctx, turnEvery)
			return nil
		}
	}
	if s.scan != nil {
		return s.goOn(ctx)
	}
	entries, err := s.read(ctx, s.place, s.r.cfg.Block)
	if err == nil {
		err = s.take(ctx, entries)
	}
	if err == nil {
		s.worked()
	}
	return err
}

// lost notes that what the sinks have need not be in the blocklist any more.
func (s *shardFeed) lost(reason error) {
	s.each(func(b *mailbox) {
		// Linked: they wait for the snapshot that was to follow, and followed until then.
		if b.letWait() || s.linked {
			b.feed.count(func(st *FeedStats) { st.Lost++ })
		}
	})
	s.follows, s.complete, s.linked = false, false, false
	s.floor = event.FromTime(time.Now())
	s.r.cfg.Logger.Warn("taking a new snapshot of the blocklist", "shard", s.shard, "reason", reason.Error())
}

func (s *shardFeed) failed(err error) { s.r.redis.Failed(int32(s.shard), err) }

func (s *shardFeed) worked() { s.r.redis.Worked(int32(s.shard)) }

// isComplete reports whether what is applied up to this moment may replace what the sinks have. A
// publisher's clock may run behind this one for a while, and what is older adds to the sinks only.
func (s *shardFeed) isComplete(applied event.Micros) bool { return applied >= s.floor }

// take hands on what the stream has brought.
func (s *shardFeed) take(ctx context.Context, entries []redis.XMessage) error {
	if len(entries) == 0 {
		return s.missed(ctx)
	}
	s.heard, s.suspect = time.Now(), false
	out := &delivery{all: make([]verdict.Verdict, 0, len(entries))}
	err := s.walk(&s.place, entries, func(c change) {
		if s.scan != nil {
			s.scan.change(c, s.place.N)
		}
		switch {
		case c.key == "":
			out.applied = c.applied
		case c.blocks || s.complete:
			// Before that a removal may be older than what the sinks have, which they cannot tell.
			// The next snapshot removes it.
			out.add(c)
		}
	})
	if err != nil {
		out.applied = 0
	}
	s.hand(out)
	if out.applied > 0 && !s.complete && s.scan == nil && s.isComplete(out.applied) {
		return errComplete
	}
	return err
}

// missed looks, when three heartbeats didn't come, whether the meta still names the feed's place.
// If it is ahead, the stream is read once more before the place counts as lost.
func (s *shardFeed) missed(ctx context.Context) error {
	if !s.suspect && time.Since(s.heard) < 3*s.r.cfg.Heartbeat {
		return nil
	}
	m, found, err := layout.ReadMeta(ctx, s.r.cfg.Redis, s.keys)
	switch {
	case err != nil:
		return err
	case found && s.judge(m) != nil:
		return fmt.Errorf("%w: %w", errLost, s.judge(m))
	case found && m.Place == s.place:
		s.heard, s.suspect = time.Now(), false
		return nil
	case found && m.Epoch == s.place.Epoch && m.N > s.place.N && !s.suspect:
		s.suspect = true
		return nil
	}
	return fmt.Errorf("%w: it is %s, and the blocklist is at %s", errLost, s.place.ID(), m.ID())
}

// read returns the stream's entries behind a place; none when nothing came within block.
// A negative block doesn't wait.
func (s *shardFeed) read(ctx context.Context, after layout.Place, block time.Duration) ([]redis.XMessage, error) {
	args := []any{"xread", "count", readCount}
	if block >= 0 {
		args = append(args, "block", block.Milliseconds())
	}
	// XRead of the client would add ten seconds to the read timeout of a blocking command, and so
	// take that long to notice a connection that is only half open.
	cmd := redis.NewXStreamSliceCmd(ctx, append(args, "streams", s.keys.Changes, after.ID())...)
	cmd.SetFirstKeyPos(int8(len(args) + 1))
	err := s.r.cfg.Redis.Process(ctx, cmd)
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.keys.Changes, err)
	}
	if streams := cmd.Val(); len(streams) > 0 {
		return streams[0].Messages, nil
	}
	return nil, nil
}

// change is an entry of the stream: a verdict, a removal, or, without a key, a heartbeat.
type change struct {
	key     string
	blocks  bool // it is a verdict, which may be a clear
	verdict verdict.Verdict
	applied event.Micros
}

// walk hands each entry on that follows at, and moves it along. It ends with errLost at one that
// doesn't follow.
func (s *shardFeed) walk(at *layout.Place, entries []redis.XMessage, do func(change)) error {
	for _, e := range entries {
		text := func(field string) string {
			v, _ := e.Values[field].(string)
			return v
		}
		if !at.Follows(e.ID, text("p")) {
			return fmt.Errorf("%w: entry %s does not follow %s", errLost, e.ID, at.ID())
		}
		at.N++
		at.Stamp = text("s")
		c := change{key: text("k")}
		if c.key == "" {
			applied, _ := strconv.ParseInt(text("h"), 10, 64) // 0 for what a later version may add
			c.applied = event.Micros(applied)
		} else if value := text("v"); value != "" {
			v, err := verdict.Parse([]byte(value))
			if err != nil {
				s.r.skip(s.shard, e.ID, err)
				continue
			}
			c.verdict, c.blocks = v, true
		}
		do(c)
	}
	return nil
}
