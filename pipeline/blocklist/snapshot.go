package blocklist

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

var errNothing = errors.New("nothing was published there yet")

// snapshot gives the sink what the shard holds, and sets the feed's place behind it. A complete snapshot
// replaces what the sink has. An incomplete one adds to it: the
// blocklist is being filled again, and what is missing from it may well be in force.
func (s *shardFeed) snapshot(ctx context.Context) error {
	asked := s.wanted()
	// The first question also makes a connection that the pool has at hand then.
	if _, err := s.meta(ctx, s.f.cfg.Redis); err != nil {
		return err
	}
	conn, done, err := oneConnection(ctx, s.f.cfg.Redis, s.keys.verdicts)
	if err != nil {
		return fmt.Errorf("connect to read %s: %w", s.keys.verdicts, err)
	}
	defer done()
	before, err := s.meta(ctx, conn)
	if err != nil {
		return err
	}
	all, err := s.scan(ctx, conn)
	if err != nil {
		return err
	}
	now, err := s.meta(ctx, conn)
	if err != nil {
		return err
	}
	from := before.place
	if s.linked {
		// What Redis has may be another life of it by now, complete as of the floor, but without what was followed since.
		from = s.place
	}
	at, applied, err := s.replay(ctx, all, from, now)
	if errors.Is(err, errLost) && s.linked {
		s.lost(err)
	}
	if err != nil {
		return fmt.Errorf("take a snapshot of %s: %w", s.keys.verdicts, err)
	}
	s.place, s.linked, s.asked = at, false, asked
	verdicts := slices.Collect(maps.Values(all))
	if s.isComplete(applied) {
		s.sink.Replace(s.shard, verdicts)
		s.f.count(func(st *FeedStats) { st.Snapshots++ })
	} else {
		s.sink.Apply(s.shard, verdicts)
		s.f.count(func(st *FeedStats) { st.Partial++ })
	}
	s.complete = s.isComplete(applied)
	if applied > 0 {
		if now.beat > 0 && applied == now.applied { // by a clock that is ahead it may lie in the future, long after the last beat
			applied = min(applied, now.beat)
		}
		s.sink.Heartbeat(s.shard, applied)
	}
	s.worked()
	return nil
}

// meta reads the shard's meta; it is an error when there is none.
func (s *shardFeed) meta(ctx context.Context, conn redis.Cmdable) (meta, error) {
	m, found, err := readMeta(ctx, conn, s.keys)
	if err != nil {
		return meta{}, err
	}
	s.f.answered.Store(true)
	if !found {
		return meta{}, fmt.Errorf("%s: %w", s.keys.verdicts, errNothing)
	}
	return m, s.judge(m)
}

// judge refuses a blocklist of another number of shards.
func (s *shardFeed) judge(m meta) (err error) {
	if shards := max(s.f.cfg.Shards, 1); m.shards != 0 && m.shards != shards {
		err = shardsDiffer(s.keys.verdicts, m.shards, shards)
	}
	s.f.refuse(s.shard, err)
	return err
}

// oneConnection returns a connection to the server that has the key; what is asked over it fails once it is broken, and done
// gives it back. A cursor means something to the process that gave it only: after a restart or a failover, a scan that
// went on would miss entries, and nothing else would tell.
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

// scan reads all verdicts of the hash. Those that change meanwhile may be there as they were or as they are.
func (s *shardFeed) scan(ctx context.Context, conn redis.Cmdable) (map[string]verdict.Verdict, error) {
	all := map[string]verdict.Verdict{}
	for cursor := uint64(0); ; {
		fields, next, err := conn.HScan(ctx, s.keys.verdicts, cursor, "", readCount).Result()
		if err != nil {
			return nil, fmt.Errorf("scan %s: %w", s.keys.verdicts, err)
		}
		for i := 0; i+1 < len(fields); i += 2 {
			if strings.HasPrefix(fields[i], metaPrefix) {
				continue
			}
			v, err := verdict.Parse([]byte(fields[i+1]))
			if err != nil {
				s.f.cfg.Logger.Error("skipping an entry of the blocklist that is no verdict", "shard", s.shard, "error", err)
				continue
			}
			all[fields[i]] = v
		}
		if cursor = next; cursor == 0 {
			return all, nil
		}
	}
}

// replay applies to all what the stream says between a place, at the latest that before the scan, and the meta after it, and
// returns the place and the heartbeat that it got to. It ends with errLost when the meta doesn't follow the place.
func (s *shardFeed) replay(ctx context.Context, all map[string]verdict.Verdict, at place, now meta) (place, event.Micros, error) {
	applied := now.applied
	do := func(c change) {
		switch {
		case c.key == "":
			if at.n > now.n {
				applied = c.applied
			}
		case c.verdict == nil:
			delete(all, c.key)
		default:
			if held, ok := all[c.key]; !ok || held.Seq < c.verdict.Seq {
				all[c.key] = *c.verdict
			}
		}
	}
	if at.epoch == now.epoch && (at.n > now.n || at.n == now.n && at.stamp != now.stamp) {
		return place{}, 0, fmt.Errorf("%w: it is %s, and the blocklist is at another %s", errLost, at.id(), now.id())
	}
	for at.epoch != now.epoch || at.n < now.n {
		entries, err := s.read(ctx, at, -1)
		if err == nil && len(entries) == 0 {
			err = fmt.Errorf("%w: nothing follows %s, and the blocklist is at %s", errLost, at.id(), now.id())
		}
		if slices.ContainsFunc(entries, func(e redis.XMessage) bool { return e.ID == now.id() && e.Values["s"] != now.stamp }) {
			err = fmt.Errorf("%w: the stream has another %s", errLost, now.id())
		}
		if err == nil {
			err = s.walk(&at, entries, do)
		}
		if err != nil {
			return place{}, 0, err
		}
	}
	return at, applied, nil
}
