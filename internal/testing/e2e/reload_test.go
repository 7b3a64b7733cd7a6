package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// unchanged are rules that all versions have.
const unchanged = `
    - {name: hourly, match: {api: "*"}, limit: 70, per: 1h, then: {block: until-reset}}
    - {name: yearly, match: {api: "*"}, limit: 25, per: year, window: calendar, then: {block: until-reset}}
    - {name: bytes, match: {api: upload.*}, count: {sum: attrs.bytes}, limit: 4Mi, per: year, window: calendar, then: {block: until-reset}}
    - {name: campaigns, key: [uid, attrs.campaign], match: {api: order.create}, limit: 4, per: year, window: calendar, then: {block: until-reset}}
    - {name: shops, key: [attrs.shop, attrs.campaign], match: {api: order.create}, limit: 9, per: year, window: calendar, then: {block: until-reset}}
    - {name: networks, key: ip, match: {api: "*"}, limit: 30, per: year, window: calendar, then: {block: until-reset}}
`

// changing are those that each version has otherwise: one's limit, which goes on from the counters
// there are, and another one's window, which starts anew. The third comes and goes.
func changing(limit, version int) string {
	text := moving(limit) + fmt.Sprintf("    - {name: anew, match: {api: \"*\"}, limit: 20, per: %dh, window: tumbling, then: {block: 1h}}\n", 24+version)
	if version%2 == 0 {
		text += "    - {name: passing, key: ip, match: {api: search.*}, limit: 5, per: 1h, then: {block: 1h}}\n"
	}
	return text
}

func moving(limit int) string {
	return fmt.Sprintf("    - {name: moving, match: {api: \"*\"}, limit: %d, per: year, window: calendar, then: {block: until-reset}}\n", limit)
}

// versions writes the rule files of two instances, each at its own moment.
type versions struct {
	t       *testing.T
	rnd     *rand.Rand
	ps      []*Process
	files   []string
	at      time.Time // when the last version was written, as the files say
	n       int
	good    []byte // the last version that compiles
	broken  int
	refused int // times that an instance said so
}

// reload writes the next version into both files, one after the other, and lets each instance know
// of it, or find out. Every third of them is broken somewhere.
func (v *versions) reload() {
	v.t.Helper()
	v.n++
	src := ruleSet(unchanged + changing(10+v.rnd.IntN(60), v.n))
	broken := v.rnd.IntN(3) == 0
	if broken {
		// Wherever it is cut, it does not compile.
		src = append(src[:v.rnd.IntN(len(src))], "\n- ]"...)
		v.broken++
	} else {
		v.good = src
	}
	first := v.rnd.IntN(2)
	for _, i := range []int{first, 1 - first} {
		v.write(i, src)
		v.tell(i, broken)
		pause(v.rnd, 0, 120*time.Millisecond)
	}
}

// write replaces an instance's file as a careful editor does. What the file was changed at does not
// depend on how fast this machine is.
func (v *versions) write(i int, src []byte) {
	v.t.Helper()
	v.at = v.at.Add(time.Second)
	next := v.files[i] + ".next"
	if err := os.WriteFile(next, src, 0o600); err != nil {
		v.t.Fatal(err)
	}
	if err := os.Chtimes(next, v.at, v.at); err != nil {
		v.t.Fatal(err)
	}
	if err := os.Rename(next, v.files[i]); err != nil {
		v.t.Fatal(err)
	}
}

// tell is one of the three ways to have a file read: SIGHUP, a request, or to wait until it is
// seen.
func (v *versions) tell(i int, broken bool) {
	v.t.Helper()
	switch p := v.ps[i]; v.rnd.IntN(3) {
	case 0:
		// In its first milliseconds a signal ends any program.
		if status, _ := get(p.url("/healthz")); status != 0 {
			p.Signal(syscall.SIGHUP)
		}
	case 1:
		status, body := post(p.url("/-/reload"))
		// It was killed, or is starting.
		known := status == 0 || status == http.StatusServiceUnavailable
		if broken {
			known = known || status == http.StatusUnprocessableEntity
		} else {
			known = known || status == http.StatusOK || status == http.StatusConflict
		}
		if !known {
			v.t.Errorf("%s is told of version %d (broken: %v): %d %s", p.name, v.n, broken, status, body)
		}
		if broken && status != 0 {
			v.refused++
		}
	}
}

// kill kills an instance and starts it again. Where its file is broken it goes on with the group's
// rules, is not ready and says why, until the file is fixed.
func (v *versions) kill(i int) {
	v.t.Helper()
	p := v.ps[i]
	p.Kill()
	src, err := os.ReadFile(v.files[i])
	if err != nil {
		v.t.Fatal(err)
	}
	p.Start()
	if !bytes.Equal(src, v.good) {
		eventually(v.t, p.name+" says that its rule file is broken", func() bool {
			status, body := get(p.url("/readyz"))
			return status == http.StatusServiceUnavailable && bytes.Contains(body, []byte("rule file"))
		})
		if !strings.Contains(p.Logs(), filepath.Base(v.files[i])+":") {
			v.t.Errorf("%s does not log where its rule file is broken", p.name)
		}
		v.write(i, v.good)
	}
	eventually(v.t, p.name+" has read its rules", func() bool {
		status, _ := get(p.url("/healthz"))
		return status != 0
	})
}

// settle writes a last version into both files, whose limit is never reached, and waits until both
// run it.
func (v *versions) settle() {
	v.t.Helper()
	last := ruleSet(unchanged + moving(1_000_000))
	for i, p := range v.ps {
		p.Ready()
		v.write(i, last)
	}
	version := func(p *Process) string {
		status, body := post(p.url("/-/reload"))
		var done struct {
			Version int64 `json:"version"`
		}
		if status != http.StatusOK || json.Unmarshal(body, &done) != nil {
			return ""
		}
		return fmt.Sprint(done.Version)
	}
	eventually(v.t, "both run the last version", func() bool {
		a, b := version(v.ps[0]), version(v.ps[1])
		return a == b && a != ""
	})
}

// A hundred reloads, every third of a broken file, by two instances whose files change at different
// moments and which are killed in between, while events flow: the counters and verdicts of the
// rules that no version changes are the model's, and those of a rule whose limit alone changes
// count all.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel() // it waits more than it works
	servers.Nightly(t, "changes")
	r := newRig(t, unchanged)
	rnd := newRand(t)
	v := &versions{t: t, rnd: rnd, at: time.Now().Add(-time.Hour), good: ruleSet(unchanged + changing(30, 0))}
	for i, name := range []string{"a", "b"} {
		v.files = append(v.files, filepath.Join(t.TempDir(), name+".yaml"))
		v.ps = append(v.ps, r.aggregator(name, "--rules", v.files[i], "--session-timeout", "3s"))
		v.write(i, v.good)
		v.ps[i].Start()
	}
	for _, p := range v.ps {
		p.Ready()
	}
	r.shared(v.ps...)

	events, reloaded := scaled(100_000), make(chan struct{})
	g := &traffic{rnd: rand.New(rand.NewPCG(rnd.Uint64(), 2)), uids: scaled(1_500)}
	emitted := inBackground(func() { r.emitSlowly(g, events, 15*time.Second/time.Duration(events/1000), reloaded, 1, 16, 300) })
	began := time.Now()
	for i := range 100 {
		v.reload()
		if i%16 == 15 {
			killed := rnd.IntN(2)
			v.kill(killed)
			t.Logf("after reload %d, %v after the first, %s was killed", i+1, time.Since(began).Round(time.Millisecond), v.ps[killed].name)
		}
	}
	close(reloaded)
	emitted()
	t.Logf("all is emitted %v after the first reload", time.Since(began).Round(time.Millisecond))
	v.settle()
	r.caughtUp()
	versions := r.end(r.names.Rules, 0)
	t.Logf("%d files were broken, which was answered %d times; the topic has %d versions", v.broken, v.refused, versions)
	if versions < 30 {
		t.Errorf("only %d versions were published: too few to prove anything", versions)
	}

	m := newModel(r)
	if m.events < events*9/10 || len(m.issued) < events/100 {
		t.Errorf("the model has %d events and %d verdicts: too few to prove anything", m.events, len(m.issued))
	}
	m.compareUnchanged(t, v.ps...)
	newNaive(r).compare(t, "moving", "bytes", v.ps...)
	var topic published
	eventually(t, "what limits that were raised and rules that are gone had in force is cleared", func() bool {
		topic = readVerdicts(r)
		return topic.inForce("moving", "anew", "passing") == 0
	})
	m.compareTopic(r, topic.of(m.set))
	r.compareRedis(topic)
	for _, p := range v.ps {
		if status := p.Stop(); status != 0 {
			t.Errorf("%s exits with %d after SIGTERM", p.name, status)
		}
	}
}

// compareUnchanged is compareCounters for the model's rules; the engine has others beside them.
func (m *model) compareUnchanged(t *testing.T, ps ...*Process) {
	t.Helper()
	d := differencesOf("counters of unchanged rules")
	explain(t, m.keys(), func(key string, reply explainReply) {
		d.compared()
		k := m.states[key]
		want, got := m.set.Explain(k.raw, []byte(key), m.askedAt(&reply), ""), m.own(reply.list)
		if m.forgets {
			forgetGone(want, got)
		}
		if k.mixed {
			want, got = m.keepCounts(want), m.keepCounts(got)
		}
		if a, b := asJSON(t, want), asJSON(t, got); !bytes.Equal(a, b) {
			d.add("%s has  %s\n   not %s", key, b, a)
		}
	}, ps...)
	d.report(t)
}

// own leaves those of the model's rules.
func (m *model) own(list []rules.Explanation) (out []rules.Explanation) {
	for _, e := range list {
		if has(m.set, e.Rule) {
			out = append(out, e)
		}
	}
	return out
}

func has(set *rules.Set, limit string) bool {
	for _, l := range set.Limits {
		if l.Name == limit {
			return true
		}
	}
	return false
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Error(err)
	}
	return text
}

// of leaves the verdicts of a set's rules.
func (p published) of(set *rules.Set) published {
	out := published{map[string][]verdict.Verdict{}, map[string][]byte{}, nil}
	for key, all := range p.all {
		if has(set, all[0].Rule) {
			out.all[key], out.last[key] = all, p.last[key]
		}
	}
	return out
}

// inForce counts the verdicts of these limits that are.
func (p published) inForce(limits ...string) (n int) {
	now := event.FromTime(time.Now())
	for _, all := range p.all {
		if last := all[len(all)-1]; slices.Contains(limits, last.Rule) && last.State == verdict.Block && last.Until > now {
			n++
		}
	}
	return n
}

// post returns a reply's status and body; status 0 means that there was none.
func post(url string) (status int, body []byte) {
	resp, err := client.Post(url, "", nil)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer func() { _ = resp.Body.Close() }()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		return 0, []byte(err.Error())
	}
	return resp.StatusCode, b.Bytes()
}
