package e2e

import (
	"math/rand/v2"
	"syscall"
	"time"
)

func enforcerFaults() []*fault {
	return []*fault{
		{kind: ofEnforcer, name: "killed", strike: enforcerKilled},
		{kind: ofEnforcer, name: "paused and woken up", strike: enforcerPaused},
		{kind: ofEnforcer, name: "cut off from Redis for longer than the stream keeps", stores: []store{single}, strike: enforcerCut},
		{kind: ofEnforcer, name: "packets from Redis held up", stores: []store{single}, strike: enforcerStalled},
	}
}

func enforcerKilled(s *stage, rnd *rand.Rand) (heal func()) {
	g := s.guard(rnd)
	g.kill()
	pause(rnd, 0, 2*time.Second)
	return g.born
}

func enforcerPaused(s *stage, rnd *rand.Rand) (heal func()) {
	g := s.guard(rnd)
	for range 3 {
		g.Signal(syscall.SIGSTOP)
		pause(rnd, 500*time.Millisecond, 3*time.Second)
		g.Signal(syscall.SIGCONT)
		pause(rnd, 0, 500*time.Millisecond)
	}
	return func() {}
}

// enforcerCut trims the stream meanwhile, as if many more changes had come.
func enforcerCut(s *stage, rnd *rand.Rand) (heal func()) {
	g := s.guard(rnd)
	heal = during(rnd, time.Second, 4*time.Second, (*gate).Cut, g.net)
	if err := s.redis.XTrimMaxLen(s.ctx, s.shardKey("changes"), 1).Err(); err != nil {
		s.t.Logf("trim the stream: %v", err) // Redis is away, too
	}
	return heal
}

func enforcerStalled(s *stage, rnd *rand.Rand) (heal func()) {
	return repeatedly(rnd, (*gate).Stall, s.guard(rnd).net)
}
