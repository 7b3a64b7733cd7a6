package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

func redisFaults() []*fault {
	return []*fault{
		{kind: ofRedis, name: "killed, started empty", stores: []store{single}, strike: redisKilled},
		{kind: ofRedis, name: "flushed", strike: redisFlushed},
		{kind: ofRedis, name: "busy for seconds (DEBUG SLEEP)", stores: []store{single}, strike: redisAsleep},
		{kind: ofRedis, name: "restored from an old snapshot", strike: redisRestored},
	}
}

func redisKilled(s *stage, rnd *rand.Rand) (heal func()) {
	s.store.one.Kill()
	pause(rnd, 0, 3*time.Second)
	return s.store.one.Start
}

func redisFlushed(s *stage, rnd *rand.Rand) (heal func()) {
	for range 1 + rnd.IntN(3) {
		s.store.flush(s)
		pause(rnd, 0, 300*time.Millisecond)
	}
	return func() {}
}

func redisAsleep(s *stage, rnd *rand.Rand) (heal func()) {
	for range 2 {
		ctx, cancel := context.WithTimeout(s.ctx, 10*time.Second)
		err := s.redis.Do(ctx, "debug", "sleep", fmt.Sprintf("%.1f", 0.5+5*rnd.Float64())).Err()
		cancel()
		if err != nil { // the client stops waiting before Redis wakes up
			s.t.Logf("DEBUG SLEEP: %v", err)
		}
		pause(rnd, 0, time.Second)
	}
	return func() {}
}

// redisRestored puts the whole blocklist back to what it was seconds ago.
func redisRestored(s *stage, rnd *rand.Rand) (heal func()) {
	var names []string
	for _, name := range []string{"verdicts", "expiry", "changes"} {
		names = append(names, s.shardKey(name))
	}
	restore := s.dump(names)
	pause(rnd, time.Second, 4*time.Second)
	restore()
	return func() {}
}

// dump notes what keys of Redis hold. restore puts them back to that: what was not there is not there
// afterwards.
func (s *stage) dump(keys []string) (restore func()) {
	dumps := map[string]*redis.StringCmd{}
	_, err := s.redis.TxPipelined(s.ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			dumps[key] = p.Dump(s.ctx, key)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Errorf("dump: %v", err)
	}
	return func() {
		_, err := s.redis.TxPipelined(s.ctx, func(p redis.Pipeliner) error {
			for key, dump := range dumps {
				p.Del(s.ctx, key)
				if dump.Val() != "" {
					p.Restore(s.ctx, key, 0, dump.Val())
				}
			}
			return nil
		})
		if err != nil {
			s.t.Errorf("restore: %v", err)
		}
	}
}
