package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	promclient "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// alertRules: some users search so much that there is a new block every few seconds, and a rule blows
// its fuse when many users of a partition exceed it.
const alertRules = `
    - name: searches
      match: {api: search.query}
      limit: 20
      per: 10s
      then: {block: 5s}
    - name: invites
      match: {api: invite}
      limit: 1
      per: 1h
      fuse: 1%
      then: {block: 1h}
`

// alertStage is a small installation that all is well with: two aggregators, two enforcers behind a
// gate to Redis, a service that asks and emits, and a Prometheus.
type alertStage struct {
	*rig
	kafka    *servers.KafkaProc // nil: the one of all tests
	store    *servers.RedisProc
	redisWay *gate // of the enforcers

	members [2]*Process
	guards  [2]*Process
	service *alertService

	password, off string // files of the enforcers
	ahead         string // an enforcer with a wrong clock
	prometheus    *prometheus
}

// withACLs is what a broker needs so that rights can be taken.
var withACLs = map[string]string{
	"authorizer.class.name":          "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
	"allow.everyone.if.no.acl.found": "true",
}

// newAlertStage has what the fault needs; alerts are evaluated every so often.
func newAlertStage(t *testing.T, f *alertFault, alerts string, every time.Duration) *alertStage {
	t.Helper()
	servers.Program(t, "prometheus")
	s := &alertStage{store: servers.StartRedis(t)}
	if f.ownBuild {
		s.ahead = buildAhead(t)
	}
	brokers := servers.Kafka(t)
	if f.ownKafka {
		s.kafka = servers.StartKafka(t, withACLs)
		brokers = []string{s.kafka.Addr()}
	}
	s.rig = newRigOn(t, brokers, s.store.Addr(), alertRules)
	dir := t.TempDir()
	s.password, s.off = filepath.Join(dir, "password"), filepath.Join(dir, "off")
	s.letEnforcersIn("right")
	s.tellEnforcers("right")
	s.redisWay = newGate(t, false).lead(s.store.Addr())
	for i := range s.members {
		s.members[i] = s.aggregator(fmt.Sprint("aggregator-", i), "--checkpoint-every", "1s").Start()
	}
	for i := range s.guards {
		s.guards[i] = newProcess(t, fmt.Sprint("enforcer-", i), program(t, "enforcer"), "--redis", s.redisWay.addr, "--redis-user", "enforcer",
			"--redis-password-file", s.password, "--off-file", s.off, "--prefix", s.prefix).Start()
	}
	for _, p := range []*Process{s.members[0], s.members[1], s.guards[0], s.guards[1]} {
		p.Ready()
	}
	s.service = newAlertService(t, s)
	s.prometheus = startPrometheus(t, alerts, every, map[string][]string{
		"aggregator": {s.members[0].metrics, s.members[1].metrics}, "enforcer": {s.guards[0].metrics, s.guards[1].metrics}, "shop": {s.service.metrics},
	})
	eventually(t, "all are scraped, blocks come into force, and no alert fires", func() bool {
		p := s.prometheus
		return p.number("sum(up)") == 5 && p.number("sum(tallygate_event_to_enforced_seconds_count)") > 3 && len(p.firing()) == 0
	})
	return s
}

// letEnforcersIn is what an operator of Redis does: enforcers have this password from now on.
func (s *alertStage) letEnforcersIn(password string) {
	s.t.Helper()
	if err := s.redis.Do(s.t.Context(), "ACL", "SETUSER", "enforcer", "on", "resetpass", ">"+password, "~*", "&*", "+@all").Err(); err != nil {
		s.t.Fatal(err)
	}
	_ = s.redis.Do(s.t.Context(), "CLIENT", "KILL", "USER", "enforcer").Err()
}

// tellEnforcers writes the file that they read the password from.
func (s *alertStage) tellEnforcers(password string) { s.write(s.password, password) }

func (s *alertStage) write(file, text string) {
	s.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// alertService is a service with users: it asks an enforcer before it acts, and emits what it did.
type alertService struct {
	enforcer string
	metrics  string
	emitter  *emit.Emitter

	asks      atomic.Bool // whether it asks
	malformed atomic.Bool // whether it sends what is no event, too
	invites   atomic.Bool // whether many users invite others, once
}

func newAlertService(t *testing.T, s *alertStage) *alertService {
	t.Helper()
	emitter, err := emit.New(emit.Config{Brokers: s.brokers, Prefix: s.prefix})
	if err != nil {
		t.Fatal(err)
	}
	service := &alertService{enforcer: s.guards[0].url("/v1/check"), emitter: emitter}
	service.asks.Store(true)
	reg := promclient.NewRegistry()
	reg.MustRegister(tallygate.NewCollector(nil, nil, emitter))
	metrics := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	service.metrics = strings.TrimPrefix(metrics.URL, "http://")
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { service.run(ctx, s) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		metrics.Close()
		ended, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = emitter.Close(ended) // Kafka may be gone
	})
	return service
}

// run has three users of eight search five times a second, which is above the limit, and each of the
// others about once.
func (v *alertService) run(ctx context.Context, s *alertStage) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, user := range []int{0, 1, 2, 3 + n%5} {
			v.act(fmt.Sprint("u", user), "search.query")
		}
		if v.invites.CompareAndSwap(true, false) {
			for i := range 800 {
				v.emitter.Emit(event.Event{UID: fmt.Sprint("i", i/2), API: "invite"})
			}
		}
		if v.malformed.Load() && n%5 == 0 {
			_, _, _ = s.send.SendMessage(malformed(s.names.Events))
		}
	}
}

// asking has little patience: a service whose enforcer does not answer lets its users act.
var asking = &http.Client{Timeout: 300 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}

func (v *alertService) act(uid, api string) {
	if v.asks.Load() {
		resp, err := asking.Post(v.enforcer, "application/json", strings.NewReader(fmt.Sprintf(`{"uid":%q,"api":%q}`, uid, api)))
		if err == nil {
			var answer struct{ Allowed bool }
			err = json.NewDecoder(resp.Body).Decode(&answer)
			_ = resp.Body.Close()
			if err == nil && !answer.Allowed {
				return
			}
		}
	}
	v.emitter.Emit(event.Event{UID: uid, API: api})
}
