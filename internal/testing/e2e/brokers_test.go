package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// One broker of three fails, each in its turn: it leads partitions, coordinates the group, or is
// the controller that clients remember. The two others have all the data, and no instance loses its
// place for longer than an election takes.
func TestOneDeadBrokerOfThree(t *testing.T) {
	servers.Nightly(t, "brokers")
	t.Parallel() // it mostly waits
	kafka := servers.StartKafkaCluster(t, 3, nil)
	r := newRigOn(t, kafka.Addrs(), servers.Redis(t), first)
	bootstrap := strings.Join(r.brokers, ",")
	a := r.aggregator("a", "--kafka", bootstrap).Start()
	b := r.aggregator("b", "--kafka", bootstrap).Start()
	a.Ready()
	b.Ready()
	r.shared(a, b)
	w := r.watch()
	ended := func() int {
		return strings.Count(a.Logs(), "session ended; joining the group again") + strings.Count(b.Logs(), "session ended; joining the group again")
	}
	for i, broker := range kafka.Nodes {
		before := ended()
		broker.Kill()
		began := time.Now()
		w.worst() // all that was emitted up to now has its verdict: those that are left suffice
		t.Logf("broker %d of 3 is dead: the last verdict came after %v, and %d sessions have failed",
			i+1, time.Since(began).Round(time.Millisecond), ended()-before)
		w.worst()
		// Each instance's, when the coordinator has failed.
		if failed := ended() - before; failed > 2 {
			t.Errorf("broker %d of 3 is dead, and %d sessions have failed", i+1, failed)
		}
		kafka.Start(broker)
		w.worst()
	}
	uids := w.stop()
	a.Ready()
	b.Ready()
	r.caughtUp()
	m := newModel(r)
	m.compareCounters(t, uidKeys(uids...), a, b)
	m.compareVerdicts(r)
	for _, p := range []*Process{a, b} {
		if status := p.Stop(); status != 0 || strings.Contains(p.Logs(), "panic") {
			t.Errorf("%s exits with %d", p.name, status)
		}
	}
}
