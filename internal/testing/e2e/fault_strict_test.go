package e2e

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// stopped sends SIGSTOP to a server, and returns what wakes it up.
func stopped(t *testing.T, pid int) (wake func()) {
	t.Helper()
	send := func(sig syscall.Signal) {
		if err := syscall.Kill(pid, sig); err != nil {
			t.Errorf("send %v to process %d: %v", sig, pid, err)
		}
	}
	send(syscall.SIGSTOP)
	return func() { send(syscall.SIGCONT) }
}

func aggregatorPaused(s *stage, rnd *rand.Rand) (heal func()) {
	m := s.pick(rnd)
	m.Signal(syscall.SIGSTOP)
	pause(rnd, time.Second, 5*time.Second)
	return func() { m.Signal(syscall.SIGCONT) }
}

func redisPaused(s *stage, rnd *rand.Rand) (heal func()) {
	heal = stopped(s.t, s.store.one.Pid())
	pause(rnd, 500*time.Millisecond, 3500*time.Millisecond)
	return heal
}

func brokerPaused(s *stage, rnd *rand.Rand) (heal func()) {
	heal = stopped(s.t, s.broker(rnd).Pid())
	pause(rnd, sessionTimeout, 3*sessionTimeout)
	return heal
}

// strictRestored starts Redis on what it knew seconds ago, the strict limits' memory too: permits that
// were granted since are gone, and those that have ended are back.
func strictRestored(s *stage, rnd *rand.Rand) (heal func()) {
	keys, err := s.redis.Keys(s.ctx, "{"+s.prefix+":*").Result()
	if err != nil {
		s.t.Errorf("list the keys: %v", err)
	}
	restore := s.dump(keys)
	pause(rnd, time.Second, 4*time.Second)
	s.store.one.Kill()
	s.store.one.Start()
	restore()
	return func() {}
}

// limitCrossed reloads rules in which one more tier, which nobody has, makes panes of the exact times of a strict
// limit, or refunds give its counters another name; and then the rules as they were. What is under way meanwhile
// knows nothing of it.
func limitCrossed(s *stage, rnd *rand.Rand) (heal func()) {
	src, err := os.ReadFile(s.rules)
	if err != nil {
		s.t.Fatal(err)
	}
	const of = "limit: 60, per: 15s, strict"
	for range 2 + rnd.IntN(2) {
		more := []string{"limit: 60, tiers: [{when: 'attrs.nobody == \"has\"', limit: 90}], per: 15s, strict", "limit: 60, per: 15s, refunds: true, strict"}[rnd.IntN(2)]
		next := bytes.Replace(src, []byte(of), []byte(more), 1)
		if bytes.Equal(next, src) {
			s.t.Fatalf("no strict rule has %q", of)
		}
		s.reload(next)
		pause(rnd, 2*time.Second, 5*time.Second)
		s.reload(src)
		pause(rnd, 2*time.Second, 5*time.Second)
	}
	return func() {}
}

// reload has the aggregators find another text of the rules, a whole one.
func (s *stage) reload(src []byte) {
	s.t.Helper()
	next := s.rules + ".next"
	if err := errors.Join(os.WriteFile(next, src, 0o600), os.Rename(next, s.rules)); err != nil {
		s.t.Fatal(err)
	}
}

func enforcersCut(s *stage, rnd *rand.Rand) (heal func()) {
	return during(rnd, 0, 3*time.Second, (*gate).Cut, s.asks)
}

// enforcersStalled delivers questions, and answers, when nobody waits for them any longer.
func enforcersStalled(s *stage, rnd *rand.Rand) (heal func()) {
	for range 2 {
		during(rnd, 500*time.Millisecond, 2*time.Second, (*gate).Stall, s.asks)()
		pause(rnd, 0, time.Second)
	}
	return during(rnd, 500*time.Millisecond, 3*time.Second, (*gate).Stall, s.asks)
}

func enforcerReplaced(s *stage, rnd *rand.Rand) (heal func()) {
	s.strict.start(rnd.IntN(strictEnforcers))
	return func() {}
}

// emittersCut keeps events from Kafka until their permits are lost: they come when these count already.
func emittersCut(s *stage, rnd *rand.Rand) (heal func()) {
	return during(rnd, 10*time.Second, 12*time.Second, (*gate).Cut, s.apps...)
}

// failedOver waits until another node has the first shard.
func failedOver(s *stage, from *servers.RedisProc) {
	s.t.Helper()
	eventually(s.t, "a replica takes its primary's place", func() bool {
		c, ok := s.redis.(*redis.ClusterClient)
		if !ok {
			return false
		}
		c.ReloadState(s.ctx)
		owner, err := c.MasterForKey(s.ctx, s.shardKey("verdicts"))
		return err == nil && owner.Options().Addr != from.Addr()
	})
}

func shardKilled(s *stage, rnd *rand.Rand) (heal func()) {
	node, _, _ := s.shardNode()
	node.Kill()
	failedOver(s, node)
	pause(rnd, 0, 2*time.Second)
	return node.Start
}

// shardPaused wakes the old primary up when another has its place: it still takes itself for the
// primary.
func shardPaused(s *stage, rnd *rand.Rand) (heal func()) {
	node, _, _ := s.shardNode()
	heal = stopped(s.t, node.Pid())
	failedOver(s, node)
	pause(rnd, 0, time.Second)
	return heal
}
