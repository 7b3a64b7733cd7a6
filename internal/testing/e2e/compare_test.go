package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
	"github.com/tallygate/tallygate/windows"
)

// differences are between the engine and the model. The first ten are shown.
type differences struct {
	mu    sync.Mutex
	what  string
	began time.Time
	all   int // things compared
	n     int
	first []string
}

// differencesFound counts those of all reports.
var differencesFound atomic.Int64

func differencesOf(what string) *differences { return &differences{what: what, began: time.Now()} }

func (d *differences) compared() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all++
}

func (d *differences) add(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n++
	if len(d.first) < 10 {
		d.first = append(d.first, fmt.Sprintf(format, args...))
	}
}

func (d *differences) report(t *testing.T) {
	t.Helper()
	differencesFound.Add(int64(d.n))
	if d.n > 0 {
		t.Errorf("%s: %d differences in %d:\n%s", d.what, d.n, d.all, strings.Join(d.first, "\n"))
		return
	}
	t.Logf("%s: %d compared in %v, no difference", d.what, d.all, time.Since(d.began).Round(time.Millisecond))
}

// explainReply is what /v1/explain answers.
type explainReply struct {
	Rules json.RawMessage `json:"rules"`
	list  []rules.Explanation
}

// explain asks one of the instances for keys' counters, several at a time, and gives each
// reply to with, from several goroutines.
func explain(t *testing.T, keys []string, with func(key string, reply explainReply), ps ...*Process) {
	t.Helper()
	const askers = 8
	next := make(chan string)
	var wg sync.WaitGroup
	for i := range askers {
		p := ps[i%len(ps)]
		wg.Go(func() {
			for key := range next {
				reply, err := explainKey(p, key)
				if err != nil {
					t.Error(err)
					continue
				}
				with(key, reply)
			}
		})
	}
	for _, key := range keys {
		next <- key
	}
	close(next)
	wg.Wait()
}

// explainKey asks again while the key changes its owner.
func explainKey(p *Process, key string) (reply explainReply, err error) {
	dims, err := event.ParseKey([]byte(key))
	if err != nil {
		return reply, err
	}
	q := url.Values{"exact": {"true"}} // not also the keys that contain it
	for _, d := range dims {
		q.Set("key."+d.Name, d.Value)
	}
	var status int
	var body []byte
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if status, body = get(p.url("/v1/explain?" + q.Encode())); status == http.StatusOK {
			break
		}
	}
	if status != http.StatusOK {
		return reply, fmt.Errorf("explain %s at %s: %d %s", key, p.name, status, body)
	}
	if err = json.Unmarshal(body, &reply); err == nil {
		err = json.Unmarshal(reply.Rules, &reply.list)
	}
	return reply, err
}

// compareCounters asks for the keys and compares the whole reply with what the model would
// answer at the same moment. Of a key whose events come from several partitions the order
// is not fixed: there the counts are compared.
func (m *model) compareCounters(t *testing.T, keys []string, ps ...*Process) {
	t.Helper()
	d := differencesOf("counters by HTTP")
	explain(t, keys, func(key string, reply explainReply) {
		d.compared()
		k := m.states[key]
		if k == nil {
			k = &keyState{}
		}
		want := m.set.Explain(k.raw, []byte(key), m.askedAt(&reply), "")
		if m.forgets {
			forgetGone(want, reply.list)
		}
		if m.permits != nil {
			want, reply.list = m.withoutStrict(want), m.withoutStrict(reply.list)
		}
		if k.mixed {
			want, reply.list = m.keepCounts(want), m.keepCounts(reply.list)
		}
		text, err := json.Marshal(want)
		got, err2 := json.Marshal(reply.list)
		if err := errors.Join(err, err2); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(text, got) {
			d.add("%s has  %s\n   not %s", key, got, text)
		}
		if rule := reply.unexplained(); rule != "" {
			d.add("%s: that it is exempt from %s, and why, contradict each other: %s", key, rule, reply.Rules)
		}
	}, ps...)
	d.report(t)
}

// unexplained returns a rule that a key is exempt from and no reason is given, or the other way round; "" for none.
func (r *explainReply) unexplained() string {
	var list []struct {
		Rule   string            `json:"rule"`
		Exempt bool              `json:"exempt"`
		By     []json.RawMessage `json:"exempt_by"`
	}
	if json.Unmarshal(r.Rules, &list) != nil {
		return "all of them"
	}
	for _, e := range list {
		if e.Exempt != (len(e.By) > 0) {
			return e.Rule
		}
	}
	return ""
}

// forgetGone leaves out the times and ids that a key which has left meanwhile has taken along. All
// else was over by then; it may have returned by another limit's event.
func forgetGone(want, got []rules.Explanation) {
	for i := range min(len(want), len(got)) {
		if got[i].Latest == event.NoTime {
			want[i].Latest = event.NoTime
		}
		if got[i].Counted == event.NoTime && want[i].Count == 0 {
			want[i].Counted = event.NoTime
		}
		if len(got[i].Events) == 0 && want[i].Verdict == nil && want[i].Candidate == nil {
			want[i].Events = nil
		}
	}
}

// askedAt is the moment that a reply speaks of: a sliding window ends then.
func (m *model) askedAt(reply *explainReply) event.Micros {
	for _, e := range reply.list {
		for _, l := range m.set.Limits {
			if l.Name == e.Rule && l.Window.Kind == windows.Sliding {
				return e.Until
			}
		}
	}
	return event.FromTime(time.Now())
}

// keepCounts leaves what does not depend on the order of events.
func (m *model) keepCounts(list []rules.Explanation) []rules.Explanation {
	var out []rules.Explanation
	for _, e := range list {
		if m.orderly(e.Rule) {
			out = append(out, rules.Explanation{Rule: e.Rule, Count: e.Count, Limit: e.Limit, FreesAt: e.FreesAt})
		}
	}
	return out
}

// published is what the verdict topic holds: per record key its verdicts, and the latest
// one as it was written.
type published struct {
	all  map[string][]verdict.Verdict
	last map[string][]byte
	left map[string]verdict.Verdict // the newest of what is left, apart
}

func readVerdicts(r *rig) published {
	r.t.Helper()
	out := published{map[string][]verdict.Verdict{}, map[string][]byte{}, map[string]verdict.Verdict{}}
	for p := range r.partitions {
		r.records(r.names.Verdicts, p, func(m *sarama.ConsumerMessage) {
			if verdict.OwnRecord(m.Key) {
				return
			}
			v, err := verdict.Parse(m.Value)
			if err != nil {
				r.t.Fatalf("verdict %s: %v", m.Value, err)
			}
			if v.State == verdict.Left {
				out.left[string(m.Key)] = v
				return
			}
			out.all[string(m.Key)] = append(out.all[string(m.Key)], v)
			out.last[string(m.Key)] = m.Value
		})
	}
	return out
}

// asModel is a verdict's JSON without what the model cannot know.
func asModel(v verdict.Verdict) string {
	v.Seq, v.Trace = 0, event.Trace{} // which the model does not know
	return string(verdict.AppendJSON(nil, &v))
}

// compareVerdicts compares the verdict topic with the model: a crash may publish a verdict
// twice, or skip one that a newer one replaces; a block that was over before it could be published
// is not; nothing else.
func (m *model) compareVerdicts(r *rig) published {
	r.t.Helper()
	got := readVerdicts(r)
	for end := time.Now().Add(10 * time.Second); !m.lastAreOut(got) && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		got = readVerdicts(r)
	}
	m.compareTopic(r, got)
	return got
}

// lastAreOut reports whether ends that moved, which wait for a second when all is counted, are
// published.
func (m *model) lastAreOut(got published) bool {
	for key, want := range m.issued {
		if m.comparable(key) && m.compareHistory(key, got.all[key], want) != nil {
			return false
		}
	}
	return true
}

func (m *model) compareTopic(r *rig, got published) {
	r.t.Helper()
	d := differencesOf("verdict topic")
	for key, want := range m.issued {
		if !m.comparable(key) {
			continue
		}
		d.compared()
		if err := m.compareHistory(key, got.all[key], want); err != nil {
			d.add("%s: %v", key, err)
		}
	}
	for key := range got.all {
		if m.issued[key] == nil && m.comparable(key) {
			d.add("%s: %s, the model has none", key, got.last[key])
		}
	}
	d.report(r.t)
}

func (m *model) compareHistory(key string, got, want []verdict.Verdict) error {
	text, _, _ := strings.Cut(key, "|")
	now := event.FromTime(time.Now())
	due := want // up to the last one that must have been published
	for len(due) > 0 && due[len(due)-1].State == verdict.Block && due[len(due)-1].Until <= now {
		due = due[:len(due)-1]
	}
	switch {
	case len(got) == 0 && len(due) == 0:
		return nil
	case len(got) == 0:
		return fmt.Errorf("none, not %s", asModel(due[len(due)-1]))
	case m.states[text].mixed:
		return nil // the triggering event depends on how partitions interleave
	}
	if last := asModel(got[len(got)-1]); !slices.ContainsFunc(want[max(len(due)-1, 0):], func(v verdict.Verdict) bool { return asModel(v) == last }) {
		return fmt.Errorf("the last is %s\n   not %s", last, asModel(want[len(want)-1]))
	}
	next := 0 // what of the model's may come next
	for i, v := range got {
		if i > 0 && v.Seq < got[i-1].Seq {
			return fmt.Errorf("seq %d follows %d", v.Seq, got[i-1].Seq)
		}
		if i > 0 && asModel(v) == asModel(got[i-1]) {
			continue
		}
		for next < len(want) && asModel(want[next]) != asModel(v) {
			next++
		}
		if next++; next > len(want) {
			return fmt.Errorf("%s is not among the model's, or out of order: %s", asModel(v), history(got))
		}
	}
	return nil
}

func history(vs []verdict.Verdict) string {
	var b strings.Builder
	for _, v := range vs {
		fmt.Fprintf(&b, "\n   seq %d count %v since %v until %v by %d", v.Seq, v.Count, v.Since, v.Until, v.Cause.Offset)
	}
	return b.String()
}
