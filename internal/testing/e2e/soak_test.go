package e2e

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/verdict"
)

var soakMinutes = flag.Float64("soak.minutes", 0, "soak for so long (0: two minutes, as in CI)")

// soakRules hold nothing for longer than seconds: keys come, and leave again.
const soakRules = `
    - {name: seconds, match: {api: "*"}, limit: 6, per: 3s, then: {block: until-reset}}
    - {name: penalty, match: {api: order.create}, limit: 3, per: 2s, window: tumbling, then: {block: 3s}}
    - {name: campaign-seconds, key: [uid, attrs.campaign], match: {api: order.create}, limit: 2, per: 3s, then: {block: 2s}}
    - {name: network-bytes, key: ip, match: {api: upload.*}, count: {sum: attrs.bytes}, limit: 1MiB, per: 3s, then: {block: until-reset}}
`

// soakChanging is the rule that each version has with another limit.
func soakChanging(limit int) string {
	return fmt.Sprintf("    - {name: moving, match: {api: search.*}, limit: %d, per: 2s, then: {block: 1s}}\n", limit)
}

// soak is an installation that runs for long.
type soak struct {
	*rig
	rnd       *rand.Rand
	kafka     *servers.KafkaProc
	members   []*Process
	guards    []*Process
	files     []string
	changedAt time.Time // of the rule files
	version   int
	commanded int
	flooded   int
	traffic   *traffic
	emitter   *emit.Emitter
	series    series
}

// A steady load with users that come and go, and every minute a reload, commands, a killed and a
// restarted aggregator, a flood, a stop of Kafka and a restarted enforcer: nothing grows, every
// feed comes back into step, and in the end every count is the model's.
func TestSoak(t *testing.T) {
	servers.Nightly(t, "soak")
	t.Parallel() // it mostly waits
	s := newSoak(t)
	lasts := time.Duration(cmp.Or(*soakMinutes, 2) * float64(time.Minute))
	began := time.Now()
	var over atomic.Bool
	emitted := inBackground(func() { s.load(&over) })
	sampled := inBackground(func() {
		for !over.Load() {
			s.sample(time.Since(began))
			time.Sleep(lasts / 100)
		}
	})
	for time.Since(began) < lasts {
		s.minute()
	}
	over.Store(true)
	emitted()
	sampled()
	closeEmitter(t, s.emitter)
	s.inStep()
	t.Logf("%v of load:\n%s", time.Since(began).Round(time.Second), s.series.table())
	for _, text := range s.series.growing() {
		t.Error(text)
	}
	s.compare()
	for _, p := range slices.Concat(s.members, s.guards) {
		if status := p.Stop(); status != 0 || strings.Contains(p.Logs(), "panic") {
			t.Errorf("%s exits with %d", p.name, status)
		}
	}
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	kafka := servers.StartKafka(t, nil)
	s := &soak{kafka: kafka, rnd: newRand(t), changedAt: time.Now().Add(-24 * time.Hour)}
	s.rig = newRigOn(t, []string{kafka.Addr()}, servers.Redis(t), soakRules+briefSpec)
	s.traffic = &traffic{rnd: rand.New(rand.NewPCG(s.rnd.Uint64(), 2)), uids: 2_000, late: s.set.MaxLateness / 2}
	s.emitter = s.rig.emitter(func(c *emit.Config) { c.EventsPerRecord = 8 })
	for _, name := range []string{"a", "b"} {
		file := filepath.Join(t.TempDir(), name+".yaml")
		s.files = append(s.files, file)
		s.members = append(s.members, s.aggregator(name, "--rules", file, "--session-timeout", "3s", "--checkpoint-every", "50ms"))
	}
	s.publishRules()
	for _, m := range s.members {
		m.Start()
	}
	for _, m := range s.members {
		m.Ready()
	}
	for i := range 2 {
		g := s.enforcer()
		g.name = fmt.Sprintf("enforcer %d", i+1)
		s.guards = append(s.guards, g)
	}
	return s
}

// load emits some hundred events a second, for users of whom all are new every few seconds.
func (s *soak) load(over *atomic.Bool) {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for n := 0; !over.Load(); n++ {
		<-ticks.C
		s.traffic.prefix = fmt.Sprintf("g%d-", n/int(10*time.Second/tick))
		for range scaled(25) {
			if err := s.emitter.EmitWait(s.t.Context(), s.traffic.next()); err != nil {
				s.t.Errorf("emit: %v", err)
				return
			}
		}
	}
}

// minute is what happens once a minute, with pauses between in which all comes back into step.
func (s *soak) minute() {
	s.t.Helper()
	killed, stopped := s.members[s.rnd.IntN(2)], s.members[s.rnd.IntN(2)]
	for _, happens := range []func(){
		s.publishRules,
		s.command,
		func() { killed.Kill(); killed.Start() },
		func() { s.endsWell(stopped); stopped.Start() },
		s.flood,
		func() { s.kafka.Stop(); pause(s.rnd, time.Second, 3*time.Second); s.kafka.Start() },
		func() { g := s.guards[s.rnd.IntN(2)]; g.Kill(); g.Start() },
	} {
		happens()
		s.inStep()
		pause(s.rnd, 3*time.Second, 7*time.Second)
	}
}

func (s *soak) endsWell(p *Process) {
	s.t.Helper()
	if status := p.Stop(); status != 0 {
		s.t.Errorf("%s exits with %d after SIGTERM", p.name, status)
	}
}

// inStep waits until all programs are ready and no table is behind for longer than it should be.
func (s *soak) inStep() {
	s.t.Helper()
	for _, p := range slices.Concat(s.members, s.guards) {
		p.awaitReady()
	}
	for _, g := range s.guards {
		eventually(s.t, g.name+" is in step", func() bool {
			stale := readMetrics(g)["tallygate_blocklist_staleness_seconds"]
			return stale >= 0 && stale < 5
		})
	}
}

// publishRules changes one rule's limit, in both instances' files.
func (s *soak) publishRules() {
	s.t.Helper()
	s.version++
	src := ruleSet(soakRules + soakChanging(2+s.rnd.IntN(30)) + briefSpec)
	for i, file := range s.files {
		s.changedAt = s.changedAt.Add(time.Second)
		next := file + ".next"
		err := os.WriteFile(next, src, 0o600)
		if err == nil {
			err = os.Chtimes(next, s.changedAt, s.changedAt)
		}
		if err == nil {
			err = os.Rename(next, file)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		if m := s.members[i]; m.Running() {
			m.Signal(syscall.SIGHUP)
		}
	}
}

// command blocks a user, waits until both enforcers deny, and unblocks again.
func (s *soak) command() {
	s.t.Helper()
	s.commanded++
	uid := fmt.Sprintf("operator-%d", s.commanded)
	give := func(command, more string) {
		body := fmt.Sprintf(`{"command":%q,"key":{"uid":%q},"reason":"soak"%s}`, command, uid, more)
		eventually(s.t, command+" is done", func() bool {
			resp, err := client.Post(s.members[s.rnd.IntN(2)].url("/v1/commands"), "application/json", strings.NewReader(body))
			if err != nil {
				return false
			}
			defer func() { _ = resp.Body.Close() }()
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.StatusCode == http.StatusOK
		})
	}
	seen := func(allowed bool) {
		for _, g := range s.guards {
			eventually(s.t, fmt.Sprintf("%s allows: %v", g.name, allowed), func() bool {
				resp, err := client.Post(g.url("/v1/check"), "application/json", bytes.NewReader(fmt.Appendf(nil, `{"uid":%q,"api":"x"}`, uid)))
				if err != nil {
					return false
				}
				defer func() { _ = resp.Body.Close() }()
				answer, err := io.ReadAll(resp.Body)
				return err == nil && bytes.Contains(answer, fmt.Appendf(nil, `"allowed":%v`, allowed))
			})
		}
	}
	give("block", `,"for":"1h"`)
	seen(false)
	give("unblock", "")
	seen(true)
}

// flood is some users who do all at once what others do in minutes.
func (s *soak) flood() {
	s.t.Helper()
	s.flooded++
	e := s.rig.emitter(func(c *emit.Config) { c.EventsPerRecord = 100 })
	for i := range scaled(20_000) {
		if err := e.EmitWait(s.t.Context(), event.Event{UID: fmt.Sprintf("flood-%d-%d", s.flooded, i%200), API: "search.query", Cost: event.One,
			Time: event.NoTime, BrokerTime: event.NoTime}); err != nil {
			s.t.Fatal(err)
		}
	}
	closeEmitter(s.t, e)
}

// compare compares all that was counted and published under the rules that no version changes, and
// each enforcer's table with all that was published.
func (s *soak) compare() {
	t := s.t
	t.Helper()
	s.caughtUp()
	m := newModel(s.rig)
	m.forgets = true
	if m.events < 1000 || len(m.issued) < 100 {
		t.Errorf("the model has %d events and %d verdicts: too few to prove anything", m.events, len(m.issued))
	}
	m.compareUnchanged(t, s.members...)
	topic := readVerdicts(s.rig)
	m.compareTopic(s.rig, topic.of(m.set))
	s.compareRedis(topic)
	last := map[string]verdict.Verdict{}
	for key, all := range topic.all {
		last[key] = all[len(all)-1]
	}
	for _, g := range s.guards {
		compareTable(t, g, last)
	}
}

// series are what programs and servers told over time, by name.
type series struct {
	names []string
	slack map[string]float64 // by how much the end may be above the start, beside a third
	at    map[string][]point
}

type point struct {
	at    time.Duration
	value float64
}

func (s *series) note(at time.Duration, name string, value, slack float64) {
	if s.at == nil {
		s.at, s.slack = map[string][]point{}, map[string]float64{}
	}
	if s.at[name] == nil {
		s.names = append(s.names, name)
	}
	s.at[name], s.slack[name] = append(s.at[name], point{at, value}), slack
}

// readMetrics is a program's page, with the labels of each metric added up. One that does not
// answer has none.
func readMetrics(p *Process) map[string]float64 {
	out := map[string]float64{}
	status, body := get("http://" + p.metrics + "/metrics")
	if status != http.StatusOK {
		return out
	}
	for line := range strings.Lines(string(body)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if i := strings.IndexByte(name, '{'); i >= 0 {
			name, value = name[:i], line[strings.LastIndexByte(line, ' ')+1:]
		}
		if v, err := strconv.ParseFloat(strings.TrimSpace(value), 64); ok && err == nil && name[0] != '#' {
			out[name] += v
		}
	}
	return out
}

const mebibyte = 1 << 20

// sample notes what everything takes now.
func (s *soak) sample(at time.Duration) {
	for _, p := range slices.Concat(s.members, s.guards) {
		// What a snapshot leaves behind is no growth.
		_, _ = get("http://" + p.metrics + "/debug/pprof/heap?gc=1")
		m := readMetrics(p)
		if m["go_goroutines"] == 0 {
			continue // it is being restarted
		}
		s.series.note(at, p.name+": resident, MiB", m["process_resident_memory_bytes"]/mebibyte, 48)
		s.series.note(at, p.name+": heap in use, MiB", m["go_memstats_heap_inuse_bytes"]/mebibyte, 32)
		s.series.note(at, p.name+": goroutines", m["go_goroutines"], 40)
		s.series.note(at, p.name+": open files", m["process_open_fds"], 30)
		if slices.Contains(s.members, p) {
			s.series.note(at, p.name+": keys", m["tallygate_state_keys"], 8000)
		} else {
			s.series.note(at, p.name+": verdicts in the table", m["tallygate_blocklist_entries"], 2000)
		}
	}
	// Ended ones stay for a grace of an hour, so that the hash grows for so long. What is past that
	// is to be gone, but for what a batch more would take with it.
	past := strconv.FormatInt(time.Now().Add(-time.Minute).UnixMicro(), 10)
	late, err := s.redis.ZCount(s.t.Context(), s.shardKey("expiry"), "-inf", past).Result()
	if err == nil {
		s.series.note(at, "Redis: verdicts that should be gone", float64(late), 500)
	}
	if hash, err := s.redis.HLen(s.t.Context(), s.shardKey("verdicts")).Result(); err == nil {
		s.series.note(at, "Redis: verdicts", float64(hash), math.Inf(1))
	}
}

// mean is over the samples from one share of the time to another.
func mean(all []point, from, to float64) float64 {
	last := all[len(all)-1].at
	sum, n := 0.0, 0
	for _, p := range all {
		if share := float64(p.at) / float64(last); share >= from && share <= to {
			sum, n = sum+p.value, n+1
		}
	}
	return sum / float64(max(n, 1))
}

// growing lists what is more by a third, and by its slack, in the last quarter than in the second
// one.
func (s *series) growing() (out []string) {
	for _, name := range s.names {
		start, end := mean(s.at[name], 0.25, 0.5), mean(s.at[name], 0.75, 1)
		if end > start*4/3+s.slack[name] {
			out = append(out, fmt.Sprintf("%s grows: from %.0f to %.0f", name, start, end))
		}
	}
	return out
}

// table is Markdown: what all took in the second quarter of the time, the third and the last.
func (s *series) table() string {
	var b strings.Builder
	b.WriteString("| | start | middle | end |\n|---|--:|--:|--:|\n")
	for _, name := range s.names {
		fmt.Fprintf(&b, "| %s | %.0f | %.0f | %.0f |\n", name, mean(s.at[name], 0.25, 0.5), mean(s.at[name], 0.5, 0.75), mean(s.at[name], 0.75, 1))
	}
	return b.String()
}
