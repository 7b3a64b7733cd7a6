package e2e

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
)

// An instance that was stopped, as by a suspended machine, for longer than its session lasts,
// wakes up after another has taken over. What it still had to write counts nowhere, and it
// joins again.
func TestZombie(t *testing.T) {
	t.Parallel() // it mostly waits
	servers.Nightly(t, "kills")
	r := newRig(t, everything)
	rnd := newRand(t)
	a := r.aggregator("a", "--session-timeout", "3s").Start().Ready()
	b := r.aggregator("b", "--session-timeout", "3s")
	g := &traffic{rnd: rand.New(rand.NewPCG(rnd.Uint64(), 2)), uids: scaled(3000)}
	awake := make(chan struct{})
	emitted := inBackground(func() { r.emitSlowly(g, scaled(90_000), 120*time.Millisecond, awake, 1, 20) })
	enforcer := r.enforcer()
	b.Start().Ready()
	for i, sleeper := range []*Process{a, b, a} {
		r.shared(a, b)
		time.Sleep(time.Duration(rnd.Int64N(int64(time.Second)))) // a moment of chance
		other := b
		if sleeper == b {
			other = a
		}
		sleeper.Signal(syscall.SIGSTOP)
		began := time.Now()
		r.ownsAll(other)
		t.Logf("sleep %d: %s has all partitions %v after %s was paused", i+1, other.name, time.Since(began).Round(time.Millisecond), sleeper.name)
		time.Sleep(time.Duration(rnd.Int64N(int64(time.Second)))) // the other makes its own records
		sleeper.Signal(syscall.SIGCONT)
		if !sleeper.Running() {
			t.Errorf("%s ended: %s", sleeper.name, sleeper.Logs())
		}
	}
	close(awake)
	emitted()
	r.shared(a, b)
	r.caughtUp()

	m := newModel(r)
	m.compareCounters(t, m.keys(), a, b)
	newNaive(r).compare(t, "yearly-utc", "bytes-utc", a, b)
	r.compareRedis(m.compareVerdicts(r))
	compareTable(t, enforcer, m.lastPublished(r))
	for _, p := range []*Process{a, b} {
		if status := p.Stop(); status != 0 {
			t.Errorf("%s exits with %d after SIGTERM", p.name, status)
		}
	}
}

// oneUIDEach is a uid of each partition.
func (r *rig) oneUIDEach() map[int32]string {
	out := map[int32]string{}
	for c := 'a'; len(out) < int(r.partitions); c++ {
		out[event.Partition([]byte(string(c)), r.partitions)] = string(c)
	}
	return out
}
