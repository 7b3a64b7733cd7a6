package owner

import (
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
)

// maxNoticed bounds the names, chosen by producers, that are told apart, and maxNoticedName the bytes of each.
const (
	maxNoticed     = 100
	maxNoticedName = 64
)

// unmatched are the events that no rule counts, by what they say. They are no metric: what a producer calls an
// API may have a user's name in it. The partitions of an instance share them.
type unmatched struct {
	mu     sync.Mutex
	events map[shard.Unmatched]uint64
}

func newUnmatched() *unmatched { return &unmatched{events: map[shard.Unmatched]uint64{}} }

func (u *unmatched) add(is shard.Unmatched, n uint64) {
	is = shard.Unmatched{API: cutName(is.API), Outcome: cutName(is.Outcome), NoUID: is.NoUID}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.events[is] == 0 && len(u.events) >= maxNoticed {
		is = shard.OtherUnmatched
	}
	u.events[is] += n
}

// Unmatched are the events that no rule counted, since the process began: those of which there are most first.
func (m *Metrics) Unmatched() []api.UnmatchedEvents {
	m.unmatched.mu.Lock()
	defer m.unmatched.mu.Unlock()
	out := make([]api.UnmatchedEvents, 0, len(m.unmatched.events))
	for is, n := range m.unmatched.events {
		out = append(out, api.UnmatchedEvents{API: is.API, Outcome: is.Outcome, Events: n, NoUID: is.NoUID})
	}
	slices.SortFunc(out, api.UnmatchedEvents.Compare)
	return out
}

// misplaced is the metric of events that were sent to another partition than that of their uid, by producer.
type misplaced struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	events map[string]uint64
	told   map[string]toldOf
}

// toldOf is the time of a producer's last log line, and its number of events then.
type toldOf struct {
	at     time.Time
	events uint64
}

const (
	unnamedClient  = "(unnamed)"
	misplacedQuiet = time.Hour // between two log lines about one producer
)

func newMisplaced() *misplaced {
	return &misplaced{
		desc: prometheus.NewDesc("tallygate_events_misplaced_total", "Events sent to another partition than that of their uid, and forwarded, by the producer's name.",
			[]string{"client"}, nil),
		events: map[string]uint64{}, told: map[string]toldOf{},
	}
}

// add counts events of a producer. It returns its name as it is told, and how many events there were since it
// was logged last, if it is to be logged now.
func (m *misplaced) add(client string, n uint64, now time.Time) (name string, events uint64, due bool) {
	if name = cutName(client); name == "" {
		name = unnamedClient
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.events[name] == 0 && len(m.events) >= maxNoticed {
		name = rules.OtherNames
	}
	m.events[name] += n
	told := m.told[name]
	if due = told.at.IsZero() || now.Sub(told.at) >= misplacedQuiet; due {
		m.told[name] = toldOf{now, m.events[name]}
	}
	return name, m.events[name] - told.events, due
}

// Describe implements prometheus.Collector.
func (m *misplaced) Describe(out chan<- *prometheus.Desc) { out <- m.desc }

// Collect implements prometheus.Collector.
func (m *misplaced) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for client, n := range m.events {
		out <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(n), client)
	}
}

// tellNoticed adds what a tally noticed of producers, and clears it. A producer with a wrong partitioner is
// logged at once, and then each hour.
func (c *core) tellNoticed(t *shard.Tally) {
	for is, n := range t.UnmatchedBy {
		c.env.Metrics.unmatched.add(is, *n)
	}
	clear(t.UnmatchedBy)
	for client, m := range t.Misplaced {
		name, events, due := c.env.Metrics.misplaced.add(client, m.Events, time.Now())
		if due {
			c.log.Warn("events come in other partitions than those of their uids: they are forwarded, and lose their order",
				"client", name, "events", events, "offset", m.Offset,
				"advice", "give the producer a partitioner with murmur2; the record at this offset shows which producer it is")
		}
	}
	clear(t.Misplaced)
}

// cutName is a name as it is told.
func cutName(name string) string {
	name = strings.ToValidUTF8(name, string(utf8.RuneError))
	if len(name) <= maxNoticedName {
		return name
	}
	end := maxNoticedName
	for !utf8.RuneStart(name[end]) {
		end--
	}
	return strings.Clone(name[:end])
}
