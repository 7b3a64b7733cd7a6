package aggregate

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/budget"
)

// A backlog that takes a hundred times the buffer when it is decompressed is counted within it, whatever its
// batches are like: many in a bundle, and such as are larger than the buffer. What came is given back.
func TestABacklogIsCountedWithinTheBuffer(t *testing.T) {
	r := embedded(t)
	set := compile(t, yearly)
	r.begin(set).end(t) // it makes the topics
	const buffer, batches = 2 << 20, 12
	events := 0
	for n := range batches {
		for p := range int32(rigPartitions) {
			size := []int{1 << 10, 1 << 20, 3 << 20}[n%3]
			value := event.AppendJSON(nil, hit(fmt.Sprintf("u%d", p), "a.b"))
			r.appendRaw(r.names.Events, p, compressed(t, kmsg.Record{Value: value, Headers: []kmsg.Header{{Key: "pad", Value: make([]byte, size)}}}, kmsg.Record{Value: value}))
			events += 2
		}
	}
	m := r.start(set, func(c *Config) { c.BufferBytes = buffer })
	eventually(t, "all is counted", func() bool {
		sum := int64(0)
		for kind := range budget.Kinds {
			sum += m.budget.Held(kind)
		}
		// Batches that are larger go alone: before it is known how large, each counts as what it may have.
		if most := int64(m.cfg.MaxBatchBytes + buffer); sum > most {
			t.Errorf("%d bytes are held, of %d", sum, most)
		}
		n, _ := m.sample(t, "tallygate_events_total", "result=counted")
		return int(n) == events
	})
	eventually(t, "nothing is held", func() bool {
		sum := 0.0
		for kind := range budget.Kinds {
			n, ok := m.sample(t, "tallygate_buffer_bytes", "kind="+kind.String())
			if !ok {
				t.Fatalf("no metric of %s", kind)
			}
			sum += n
		}
		return sum == 0
	})
	if n, _ := m.sample(t, "tallygate_buffer_limit_bytes"); n != buffer {
		t.Errorf("the metric says that %v bytes may be held", n)
	}
	m.end(t)
}

func TestTheBufferFollowsTheMemoryLimit(t *testing.T) {
	for _, tt := range []struct{ limit, want int64 }{
		{math.MaxInt64, 256 << 20}, {1 << 30, 256 << 20}, {460 << 20, 115 << 20}, {100 << 20, 64 << 20}, {64 << 30, 1 << 30},
	} {
		if got := bufferOf(tt.limit); got != tt.want {
			t.Errorf("of %d it is %d, want %d", tt.limit, got, tt.want)
		}
	}
}

// The rules topic is created anew, and packs of its life before are read once more. Their version is higher than
// all that there are, and a limit that they name is gone: they count under the others.
func TestPacksOutliveTheirRulesTopic(t *testing.T) {
	r := embedded(t)
	file := func(version int, more string) RuleFile {
		f := ruleFile(version, version)
		f.Source = fmt.Appendf(nil, `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: v%d}
spec:
  rules:
    - {name: everything, key: all, match: {api: "*"}, limit: %d, per: year, window: calendar, then: {block: 7d}}
%s`, version, 1000+version, more)
		return f
	}
	const more = `    - {name: more, key: all, match: {api: "*"}, count: {sum: cost}, limit: 1000, per: year, window: calendar, then: {block: 7d}}`
	var m *member
	for version := range 3 {
		if m != nil {
			m.end(t)
		}
		set, rules := withRules(t, file(version, more))
		m = r.begin(set, rules, func(c *Config) { c.CheckpointEvery = time.Hour })
	}
	eventually(t, "packs may be sent", m.packs.allowed)
	const events = 100
	var msgs []*sarama.ProducerMessage
	for i := range events {
		e := hit(fmt.Sprintf("u%d", i), "a.b")
		msgs = append(msgs, &sarama.ProducerMessage{Topic: r.names.Events, Partition: int32(i % rigPartitions), Value: sarama.ByteEncoder(event.AppendJSON(nil, e))})
	}
	r.sendAll(msgs)
	counted := func() bool {
		all, _ := m.Explain([]event.Dim{{Name: "all", Value: "true"}}, "", now()) // its owner may be away
		for _, x := range all {
			if x.Rule == "everything" {
				return x.Count == events*event.One
			}
		}
		return false
	}
	eventually(t, "all are counted", counted)
	if packs, _ := r.packsIn(); packs == 0 {
		t.Fatal("nothing was packed")
	}
	for _, p := range m.owned() { // there is no last checkpoint
		p.Fail(errors.New("killed by the test"))
	}
	m.end(t)
	r.drop(r.names.Rules)
	set, rules := withRules(t, file(9, ""))
	said := &logged{}
	m = r.start(set, rules, said.into, func(c *Config) { c.AcceptNewTopic = true })
	eventually(t, "all are counted by the new rules", func() bool { return m.Ready() == nil && counted() })
	if n := said.count("taking it over again"); n > 0 {
		t.Errorf("partitions failed %d times", n)
	}
	m.end(t)
}
