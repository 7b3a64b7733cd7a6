package index

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

// model holds the verdicts of an index of two shards, by record key.
type model struct {
	r    *rand.Rand
	x    *Index
	held map[string]verdict.Verdict
}

// random returns a verdict on one of 3,000 keys of four shapes.
func (m *model) random() verdict.Verdict {
	n := m.r.IntN(3000)
	key := []string{"uid=%d", "ip=2001:db8::%d", "attrs.x=%d&uid=1", "api=a%d&uid=1"}[n%4]
	return block([]string{"a", "b"}[m.r.IntN(2)], fmt.Sprintf(key, n), func(v *verdict.Verdict) {
		v.Seq = m.r.Int64N(1000)
		if api := apiOf(v.Key); api != "" {
			v.APIs = []string{api}
		}
		if m.r.IntN(2) == 0 {
			v.Until += event.Micros(m.r.Int64N(1e9))
		}
		v.Count = event.Decimal(m.r.Int64N(1e9))
		if m.r.IntN(3) == 0 {
			v.Cause = verdict.Cause{ID: strconv.Itoa(m.r.IntN(1e6)), Partition: 3, Offset: m.r.Int64N(1e12)}
		}
		if m.r.IntN(4) == 0 {
			v.Public = []string{"x", "y"}[m.r.IntN(2)]
		}
		if m.r.IntN(100) == 0 { // many classes: more than a record's head has room for
			v.Limit = event.Decimal(m.r.IntN(20_000))
		}
	})
}

func shardOf(v verdict.Verdict) int { return len(v.Key[0].Value) % 2 }

func (m *model) apply(v verdict.Verdict) {
	m.x.Apply(shardOf(v), []verdict.Verdict{v})
	if old, ok := m.held[nameOf(v)]; ok && old.Seq > v.Seq {
		return
	}
	if m.held[nameOf(v)] = v; v.State == verdict.Clear {
		delete(m.held, nameOf(v))
	}
}

func (m *model) remove(v verdict.Verdict) {
	m.x.Remove(shardOf(v), &verdict.RecordKey{Key: v.Key, Rule: v.Rule, Warn: v.State == verdict.Warn})
	delete(m.held, nameOf(v))
}

func (m *model) replace(shard int) {
	maps.DeleteFunc(m.held, func(_ string, v verdict.Verdict) bool { return shardOf(v) == shard })
	var all []verdict.Verdict
	for range m.r.IntN(1500) {
		if v := m.random(); shardOf(v) == shard {
			all = append(all, v)
			m.held[nameOf(v)] = v
		}
	}
	m.x.Replace(shard, all)
}

func (m *model) step() {
	v := m.random()
	switch n := m.r.IntN(2000); {
	case n == 0:
		m.replace(shardOf(v))
	case n < 200:
		m.remove(v)
	case n < 700:
		v.State = verdict.Clear
		m.apply(v)
	default:
		m.apply(v)
	}
}

// TestAgainstAMap does random things to an index and to a map, and compares all that they hold.
func TestAgainstAMap(t *testing.T) {
	m := &model{r: rand.New(rand.NewPCG(testrun.Seed(t), 0)), x: newIndex(true), held: map[string]verdict.Verdict{}}
	for i := range 30_000 {
		m.step()
		if i%5000 == 0 {
			m.x.Sweep(t0)
			m.compare(t)
		}
		probe := m.random()
		want := 0
		for _, rule := range []string{"a", "b"} {
			probe.Rule = rule
			if _, ok := m.held[nameOf(probe)]; ok {
				want++
			}
		}
		if got := names(m.x, probe.Key...); len(got) != want {
			t.Fatalf("%v has %q, want %d verdicts", probe.Key, got, want)
		}
	}
	m.compare(t)
}

// compare looks at everything that is held, to the last field.
func (m *model) compare(t *testing.T) {
	t.Helper()
	if err := verify(m.x); err != nil {
		t.Fatal(err)
	}
	got := map[string]verdict.Verdict{}
	m.x.Walk(func(r Record) {
		for _, v := range r.Verdicts() {
			got[nameOf(*v)] = *v
		}
	}, func() { clear(got) })
	if len(got) != len(m.held) || m.x.Len() != len(m.held) {
		t.Fatalf("%d verdicts are found, and %d counted; want %d", len(got), m.x.Len(), len(m.held))
	}
	for name, want := range m.held {
		if !reflect.DeepEqual(got[name], want) {
			t.Fatalf("%s is\n%+v, want\n%+v", name, got[name], want)
		}
	}
}
