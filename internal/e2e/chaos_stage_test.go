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

	"github.com/tallygate/tallygate/internal/servers"
)

// stage is where a plan is played: servers of its own, programs that reach them through gates.
type stage struct {
	*rig
	plan  *plan
	ctx   context.Context // ends with the test
	kafka *servers.KafkaProc
	store *servers.RedisProc

	members   []*member
	publisher *member
	guards    []*guard
	apps      *gate // emitters' way to Kafka
	writers   *gate // aggregators' and the publisher's way to Redis

	load    *load
	lookout *lookout
	foreign int // events that foreign producers have sent
	missed  int // moments that did not come
}

// member is an aggregator behind a gate.
type member struct {
	*Process
	net *gate // to Kafka
}

// guard is an enforcer behind a gate.
type guard struct {
	*Process
	net  *gate        // to Redis
	life atomic.Int64 // counts its deaths and births: odd while it runs
}

// sessionTimeout is short, since a plan waits for many to pass.
const sessionTimeout = 3 * time.Second

// newStage starts the servers, then all programs at once: nobody has made the topics.
func newStage(t *testing.T, p *plan) *stage {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &stage{plan: p, ctx: ctx}
	var gates []*gate
	var behind []servers.Listener
	for range len(p.aggregators) + 2 {
		g := newGate(t, true)
		gates = append(gates, g)
		behind = append(behind, servers.Listener{Addr: strings.Replace(freeAddr(t), "127.0.0.1", "127.0.0.2", 1), Proxy: g.addr}) // where nobody else looks for a port
	}
	s.kafka = servers.StartKafkaBehind(t, map[string]string{"log.cleaner.backoff.ms": "100"}, behind)
	for i, g := range gates {
		g.lead(behind[i].Addr)
	}
	s.store = servers.StartRedis(t, "--enable-debug-command", "yes")
	s.rig = newBareRig(t, []string{s.kafka.Addr()}, s.store.Addr(), p.rules, p.partitions)
	s.writers = newGate(t, false).lead(s.store.Addr())
	for i, static := range p.aggregators {
		name := string(rune('a' + i))
		var options []string
		if static {
			options = append(options, "--instance-id", name)
		}
		s.members = append(s.members, s.member(name, gates[i], options...))
	}
	s.publisher = s.member("publisher", gates[len(p.aggregators)], "--publish-only")
	s.apps = gates[len(gates)-1]
	for i := range enforcers {
		g := newGate(t, false).lead(s.store.Addr())
		s.guards = append(s.guards, &guard{net: g,
			Process: newProcess(t, "enforcer "+strconv.Itoa(i+1), program(t, "enforcer"), "--redis", g.addr, "--prefix", s.prefix)})
	}
	t.Cleanup(func() { // before the programs and servers go
		cancel()
		s.load.stop()
		s.lookout.stop()
	})
	return s
}

func (s *stage) member(name string, g *gate, options ...string) *member {
	options = append([]string{"--kafka", g.addr, "--redis", s.writers.addr, "--session-timeout", sessionTimeout.String(), "--replication", "1"}, options...)
	if s.plan.brief {
		options = append(options, "--checkpoint-every", "50ms") // a sweep takes 300 of them
	}
	return &member{s.aggregator(name, options...), g}
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

// firstStart stands for what every plan begins with: nobody has made the topics yet.
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
	for _, m := range s.members {
		m.awaitReady()
	}
	s.publisher.awaitReady()
	for _, g := range s.guards {
		g.awaitReady()
	}
}

// born starts an enforcer; die kills it.
func (g *guard) born() {
	g.Start()
	g.life.Add(1)
}

func (g *guard) die() {
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
