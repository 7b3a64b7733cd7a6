package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// stage is where a plan is played: servers of its own, programs that reach them through gates.
type stage struct {
	*rig
	plan  *plan
	ctx   context.Context // ends with the test
	kafka []*servers.KafkaProc
	store stores

	members   []*member
	publisher *member
	guards    []*guard
	apps      gates // emitters' ways to Kafka
	writers   *gate // aggregators' and the publisher's way to a single Redis

	load    *load
	lookout *lookout

	strict *strictClients // nil: none
	asks   *gate          // their enforcers' way to a single Redis

	healing   bool   // the faults of a step are being healed
	collector string // of traces: its URL
	foreign   int    // events that foreign producers have sent
	missed    int    // moments that did not come
}

// member is an aggregator behind gates.
type member struct {
	*Process
	stage *stage
	net   gates // to Kafka
}

// guard is an enforcer behind a gate.
type guard struct {
	*Process
	net  *gate        // to a single Redis
	life atomic.Int64 // counts its deaths and births: odd while it runs
}

// sessionTimeout is short, since a plan waits for many to pass.
const sessionTimeout = 3 * time.Second

// newStage starts the servers, then all programs at once: no topics exist.
func newStage(t *testing.T, p *plan) *stage {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &stage{plan: p, ctx: ctx}
	s.startCollector(t)
	ways, brokers := s.startKafka(t)
	s.store = startStores(t, p.store)
	s.rig = newBareRig(t, brokers, s.store.addr(), p.rules, p.partitions)
	s.redis = s.store.client(t)
	if p.store == single {
		s.writers = newGate(t, false).lead(s.store.addr())
	}
	for i, static := range p.aggregators {
		name := string(rune('a' + i))
		var options []string
		if static {
			options = append(options, "--instance-id", name)
		}
		s.members = append(s.members, s.member(name, ways[i], options...))
	}
	s.publisher = s.member("publisher", ways[len(p.aggregators)], "--publish-only")
	s.apps = ways[len(ways)-1]
	for i := range enforcers {
		g := &guard{}
		if p.store == single {
			g.net = newGate(t, false).lead(s.store.addr())
		}
		g.Process = newProcess(t, "enforcer "+strconv.Itoa(i+1), program(t, "enforcer"), append(s.store.options(g.net), "--prefix", s.prefix, "--trace-otlp", s.collector)...)
		s.guards = append(s.guards, g)
	}
	t.Cleanup(func() { // before the programs and servers go
		cancel()
		if s.strict != nil {
			s.strict.stop()
		}
		s.load.stop()
		s.lookout.stop()
	})
	return s
}

// startKafka starts the plan's brokers. Each aggregator, the publisher and the emitters have ways
// of their own to them: a gate a broker.
func (s *stage) startKafka(t *testing.T) (ways []gates, brokers []string) {
	t.Helper()
	behind := make([][]servers.Listener, s.plan.brokers)
	for range len(s.plan.aggregators) + 2 {
		var way gates
		for i := range behind {
			g := newGate(t, true)
			way = append(way, g)
			// In a range without other servers.
			behind[i] = append(behind[i], servers.Listener{Addr: strings.Replace(servers.FreeAddr(t), "127.0.0.1", "127.0.0.2", 1), Proxy: g.addr})
		}
		ways = append(ways, way)
	}
	props := map[string]string{"log.cleaner.backoff.ms": "100"}
	if len(behind) == 1 {
		s.kafka = []*servers.KafkaProc{servers.StartKafkaBehind(t, props, behind[0])}
	} else {
		s.kafka = servers.StartKafkaCluster(t, len(behind), props, behind...).Nodes
	}
	for i, node := range s.kafka {
		brokers = append(brokers, node.Addr())
		for j, way := range ways {
			way[i].lead(behind[i][j].Addr)
		}
	}
	return ways, brokers
}

func (s *stage) member(name string, way gates, options ...string) *member {
	options = append([]string{"--kafka", way.addrs(), "--session-timeout", sessionTimeout.String(), "--replication", strconv.Itoa(s.plan.brokers),
		"--trace-otlp", s.collector, "--trace-sample", "0.1"}, options...)
	options = append(options, s.store.options(s.writers)...)
	if s.plan.brief {
		options = append(options, "--checkpoint-every", "50ms") // a sweep takes 300 of them
	}
	return &member{s.aggregator(name, options...), s, way}
}

// start starts all programs at once, and waits for them.
func (s *stage) start() time.Duration {
	s.t.Helper()
	began := time.Now()
	for _, m := range s.members {
		m.Start()
	}
	s.publisher.Start()
	for _, g := range s.guards {
		g.born()
	}
	s.allReady()
	if err := s.client.RefreshMetadata(); err != nil {
		s.t.Fatal(err)
	}
	return time.Since(began)
}

// firstStart stands for what every plan begins with: no topics exist yet.
func firstStart(aggregators int) *fault {
	name := "first start, alone with a publisher"
	if aggregators > 1 {
		name = "first start of several at once"
	}
	return &fault{kind: ofAggregator, name: name}
}

// all are the stage's programs.
func (s *stage) all() []*Process {
	ps := []*Process{s.publisher.Process}
	for _, m := range s.members {
		ps = append(ps, m.Process)
	}
	for _, g := range s.guards {
		ps = append(ps, g.Process)
	}
	return ps
}

func (s *stage) writeLogs(dir string) {
	s.t.Helper()
	err := os.MkdirAll(dir, 0o755)
	for _, p := range s.all() {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, strings.ReplaceAll(p.name, " ", "-")+".log"), []byte(p.Logs()), 0o644))
	}
	if err != nil {
		s.t.Error(err)
	}
}

// allReady waits until all programs are.
func (s *stage) allReady() {
	s.t.Helper()
	s.mayWait()
	for _, m := range s.members {
		m.awaitReady()
	}
	s.publisher.awaitReady()
	for _, g := range s.guards {
		g.awaitReady()
	}
}

// mayWait fails the test when a fault is being healed: what it waits for may be broken still, by
// the fault beside it.
func (s *stage) mayWait() {
	s.t.Helper()
	if s.healing {
		s.t.Fatal("what heals a fault waits for a program")
	}
}

// awaitReady waits until the member is.
func (m *member) awaitReady() {
	m.t.Helper()
	m.stage.mayWait()
	m.Process.awaitReady()
}

// born starts an enforcer; kill kills it.
func (g *guard) born() {
	g.Start()
	g.life.Add(1)
}

func (g *guard) kill() {
	g.life.Add(1)
	g.Kill()
}

// pick is one aggregator of chance.
func (s *stage) pick(rnd *rand.Rand) *member { return s.members[rnd.IntN(len(s.members))] }

func (s *stage) guard(rnd *rand.Rand) *guard { return s.guards[rnd.IntN(len(s.guards))] }

// pause is a time of chance, of the fault's own making.
func pause(rnd *rand.Rand, least, most time.Duration) {
	time.Sleep(least + time.Duration(rnd.Int64N(int64(most-least+1))))
}

// replaced waits until the others have all of a member's partitions.
func (s *stage) replaced(m *member) {
	s.t.Helper()
	var others []*Process
	for _, o := range s.members {
		if o != m {
			others = append(others, o.Process)
		}
	}
	s.ownsAll(others...)
}

// inStep waits until all that has been emitted up to now is counted, and its verdicts are in Redis.
func (s *stage) inStep() time.Duration {
	s.t.Helper()
	began := time.Now()
	for _, topic := range []string{s.names.Events, s.names.Loop} {
		ends := s.ends(topic)
		eventually(s.t, "checkpoints cover "+topic, func() bool { return s.covered(topic, ends) })
	}
	s.inRedis(s.ends(s.names.Verdicts))
	return time.Since(began)
}

func (s *stage) ends(topic string) []int64 {
	s.t.Helper()
	ends := make([]int64, s.partitions)
	for p := range ends {
		eventually(s.t, "the broker tells the end of "+topic, func() (ok bool) {
			var err error
			ends[p], err = s.client.GetOffset(topic, int32(p), -1)
			return err == nil
		})
	}
	return ends
}

func (s *stage) covered(topic string, ends []int64) bool {
	all := make([]int32, len(ends))
	for p := range all {
		all[p] = int32(p)
	}
	reply, err := s.admin.ListConsumerGroupOffsets(s.names.Group, map[string][]int32{topic: all})
	if err != nil {
		_ = s.client.RefreshCoordinator(s.names.Group)
		return false
	}
	for p, end := range ends {
		if b := reply.GetBlock(topic, int32(p)); end > 0 && (b == nil || b.Offset < end) {
			return false
		}
	}
	return true
}

// inRedis waits until the blocklist has the verdict partitions up to there.
func (s *stage) inRedis(ends []int64) {
	s.t.Helper()
	hash := s.shardKey("verdicts")
	for p, end := range ends {
		eventually(s.t, fmt.Sprintf("Redis has verdict partition %d", p), func() bool {
			text, _ := s.redis.HGet(s.ctx, hash, "\x00reached:"+strconv.Itoa(p)).Result()
			reached, _ := strconv.ParseInt(text, 10, 64)
			return reached >= end
		})
	}
}

// ownsAll waits until every partition is one of these instances'.
func (r *rig) ownsAll(ps ...*Process) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("all partitions are with %d", len(ps)), func() bool {
		for _, uid := range r.oneUIDEach() {
			if !r.ownedBy(uid, ps) {
				return false
			}
		}
		return true
	})
}

func (r *rig) ownedBy(uid string, ps []*Process) bool {
	for _, p := range ps {
		req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, p.url("/v1/explain?uid="+uid), nil)
		if err != nil {
			r.t.Fatal(err)
		}
		req.Header.Set("X-Tallygate-Forwarded", "1") // don't ask another
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return true
			}
		}
	}
	return false
}
