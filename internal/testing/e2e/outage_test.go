package e2e

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// Kafka and Redis are killed while events flow, and come back: Kafka with what it had
// acknowledged, Redis with nothing. The programs live through it, and everything is exact.
func TestServersCrash(t *testing.T) {
	t.Parallel() // it mostly waits
	servers.Nightly(t, "outages")
	kafka := servers.StartKafka(t, nil)
	redis := servers.StartRedis(t)
	r := newRigOn(t, []string{kafka.Addr()}, redis.Addr(), everything)
	rnd := newRand(t)
	a := r.aggregator("a").Start().Ready()
	enforcer := r.enforcer()
	g := &traffic{rnd: rand.New(rand.NewPCG(rnd.Uint64(), 2)), uids: 4000}
	back := make(chan struct{})
	emitted := inBackground(func() { r.emitSlowly(g, scaled(60_000), 150*time.Millisecond, back, 1, 30) })
	time.Sleep(time.Duration(500+rnd.IntN(2000)) * time.Millisecond) // a moment of chance
	redis.Kill()
	time.Sleep(time.Duration(rnd.IntN(1000)) * time.Millisecond) // verdicts are issued meanwhile
	redis.Start()
	kafka.Kill()
	time.Sleep(time.Duration(rnd.IntN(1000)) * time.Millisecond) // an outage
	kafka.Start()
	close(back)
	emitted()
	a.Ready()
	r.caughtUp()

	m := newModel(r)
	if m.events < scaled(57_000) {
		t.Errorf("the model has %d events", m.events)
	}
	m.compareCounters(t, m.keys(), a)
	newNaive(r).compare(t, "yearly-utc", "bytes-utc", a)
	r.compareRedis(m.compareVerdicts(r))
	compareTable(t, enforcer, m.lastPublished(r))
	for _, p := range []*Process{a, enforcer} {
		if status := p.Stop(); status != 0 || strings.Contains(p.Logs(), "panic") {
			t.Errorf("%s exits with %d", p.name, status)
		}
	}
}
