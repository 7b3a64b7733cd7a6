package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/verdict"
)

const first = `
    - name: first
      match: {api: "*"}
      limit: 1
      per: year
      window: calendar
      then: {block: until-reset}
`

// Verdicts wait for less than a session timeout while instances come and go: that is what a member
// costs that is killed and not known by its name. The timeout is long, so that no busy machine is one.
const standstill = 2 * time.Minute

// A second instance takes partitions over, one is killed and comes back under its name, one
// leaves for good: verdicts wait for moments only, and whoever is asked knows every key.
func TestMembersComeAndGo(t *testing.T) {
	t.Parallel() // it waits more than it works
	r := newRig(t, first)
	patient := []string{"--session-timeout", standstill.String()}
	a := r.aggregator("a", append(patient, "--instance-id", "a")...).Start().Ready()
	w := r.watch()
	step := func(what string, do func()) {
		do()
		time.Sleep(500 * time.Millisecond) // let some events pass
		worst := w.worst()
		t.Logf("%s: the slowest verdict took %v", what, worst.Round(time.Millisecond))
		if worst >= standstill {
			t.Errorf("%s: verdicts stood still for %v", what, worst)
		}
	}
	step("alone", func() {})
	b := r.aggregator("b", patient...)
	step("a second instance joins", func() { b.Start().Ready(); r.shared(a, b) })
	step("one is killed, and starts again under its name", func() { a.Kill(); a.Start().Ready() })
	step("one is told to stop", func() {
		if status := b.Stop(); status != 0 {
			t.Errorf("b exits with %d after SIGTERM", status)
		}
		r.shared(a)
	})
	step("it comes back", func() { b.Start().Ready(); r.shared(a, b) })
	uids := w.stop()
	r.caughtUp()
	m := newModel(r)
	m.compareCounters(t, uidKeys(uids...), a)
	m.compareCounters(t, uidKeys(uids...), b)
	m.compareVerdicts(r)
	for _, p := range []*Process{a, b} {
		if status := p.Stop(); status != 0 {
			t.Errorf("%s exits with %d after SIGTERM", p.name, status)
		}
	}
}

// shared waits until these instances, and no others, have the partitions between them.
func (r *rig) shared(ps ...*Process) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d instances share the partitions", len(ps)), func() bool {
		groups, err := r.admin.DescribeConsumerGroups([]string{r.names.Group})
		if err != nil || len(groups) != 1 || groups[0].State != "Stable" {
			return false
		}
		owners := 0
		for _, m := range groups[0].Members {
			if a, err := m.GetMemberAssignment(); err == nil && a != nil && len(a.Topics[r.names.Events]) > 0 {
				owners++
			}
		}
		for _, p := range ps {
			if status, _ := get(p.url("/readyz")); status != http.StatusOK {
				return false
			}
		}
		return owners == len(ps)
	})
}

// watcher emits one event after another, each of a uid of its own, and times their verdicts.
type watcher struct {
	t    *testing.T
	quit context.CancelFunc
	done sync.WaitGroup

	mu   sync.Mutex
	sent map[string]time.Time // no verdict yet
	uids []string
	slow time.Duration // since the last question
}

func (r *rig) watch() *watcher {
	r.t.Helper()
	ctx, quit := context.WithCancel(context.WithoutCancel(r.t.Context()))
	w := &watcher{t: r.t, quit: quit, sent: map[string]time.Time{}}
	e := r.emitter(func(c *emit.Config) { c.AsIs = false })
	w.done.Go(func() {
		defer closeEmitter(r.t, e)
		for i := 0; ctx.Err() == nil; i++ {
			uid := fmt.Sprintf("w%d", i)
			w.mu.Lock()
			w.sent[uid], w.uids = time.Now(), append(w.uids, uid)
			w.mu.Unlock()
			e.Emit(event.Event{UID: uid, API: "x.y"})
			time.Sleep(10 * time.Millisecond)
		}
	})
	c, err := sarama.NewConsumerFromClient(r.fetch)
	if err != nil {
		r.t.Fatal(err)
	}
	for p := range r.partitions {
		pc, err := c.ConsumePartition(r.names.Verdicts, p, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		w.done.Go(func() { w.follow(ctx, pc) })
	}
	r.t.Cleanup(func() { w.quit(); w.done.Wait() })
	return w
}

func (w *watcher) follow(ctx context.Context, pc sarama.PartitionConsumer) {
	defer func() { _ = pc.Close() }()
	for {
		select {
		case m := <-pc.Messages():
			if !verdict.OwnRecord(m.Key) {
				w.noteVerdict(m)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (w *watcher) noteVerdict(m *sarama.ConsumerMessage) {
	v, err := verdict.Parse(m.Value)
	if err != nil {
		w.t.Errorf("verdict %s: %v", m.Value, err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, waits := w.sent[v.Key[0].Value]; waits {
		w.slow = max(w.slow, time.Since(at))
		delete(w.sent, v.Key[0].Value)
	}
}

// worst waits for the verdicts of all that was sent until now, and returns how long the slowest
// took since the last call.
func (w *watcher) worst() time.Duration {
	w.t.Helper()
	now := time.Now()
	eventually(w.t, "all that was emitted has its verdict", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, at := range w.sent {
			if at.Before(now) {
				return false
			}
		}
		return true
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	slow := w.slow
	w.slow = 0
	return slow
}

// stop ends it, and returns all uids.
func (w *watcher) stop() []string {
	w.worst()
	w.quit()
	w.done.Wait()
	return w.uids
}

// Exit statuses are part of the contract: scripts and service managers go by them.
func TestExitStatuses(t *testing.T) {
	r := newRig(t, first)
	good := []string{"--kafka", r.brokers[0], "--redis", r.redisAddr, "--rules", r.rules, "--prefix", r.prefix,
		"--listen", servers.FreeAddr(t), "--metrics-listen", "127.0.0.1:0"}
	for _, c := range []struct {
		name, program string
		args          []string
		status        int
	}{
		{"help", "aggregator", []string{"--help"}, 0},
		{"unknown flag", "aggregator", []string{"--no-such-flag"}, 2},
		{"wrong value", "aggregator", append([]string{"--checkpoint-every", "soon"}, good...), 2},
		{"value out of bounds", "aggregator", append([]string{"--session-timeout", "1ms"}, good...), 2},
		{"no rules", "aggregator", []string{"--kafka", r.brokers[0], "--listen", servers.FreeAddr(t)}, 2},
		{"no rule file", "aggregator", append(good[:len(good):len(good)], "--rules", "/nonexistent.yaml"), 2},
		{"wrong rules", "aggregator", append(good[:len(good):len(good)], "--rules", "rig_test.go"), 2},
		{"taken port", "aggregator", append(good[:len(good):len(good)], "--listen", r.brokers[0]), 1},
		{"unknown flag", "enforcer", []string{"--no-such-flag"}, 2},
		{"wrong value", "enforcer", []string{"--shards", "-3", "--listen", servers.FreeAddr(t), "--grpc-listen", "none", "--metrics-listen", "127.0.0.1:0"}, 2},
	} {
		t.Run(c.program+"/"+c.name, func(t *testing.T) {
			path := program(t, c.program) // built first: that may take longer
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			cmd := exec.CommandContext(ctx, path, c.args...)
			out, _ := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != c.status || len(out) == 0 {
				t.Errorf("exits with %d, want %d, and says %s", got, c.status, out)
			}
		})
	}
}
