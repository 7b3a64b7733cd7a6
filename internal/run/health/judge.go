package health

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
)

// Memory carries state between calls of Judge. The zero value begins anew.
type Memory struct {
	since   map[string]mark      // of links and notices, by name
	members map[string]time.Time // when each aggregator answered last
	most    int                  // how many there were at once, at mostAt or since
	mostAt  time.Time
	behind  backlog
}

// mark is an earlier level, and its beginning.
type mark struct {
	level Level
	at    time.Time
}

// forgetMember is the age at which an aggregator that left is no longer missed: it was taken out of service.
const forgetMember = time.Hour

// Judge turns observations into the chain. It reads no clock and changes neither argument: the memory that it
// returns is for the next call.
func Judge(was Memory, o *Observations) (Chain, Memory) {
	now := Memory{since: map[string]mark{}, members: map[string]time.Time{}, behind: was.behind}
	now.meet(was, o)
	if now.behind = was.behind.look(o); o.NoRedis {
		now.behind = backlog{}
	}
	seen := *o
	seen.left, seen.behind = now.gone(o), now.behind.since
	c := Chain{Links: append([]Link{producers(&seen), kafkaLink(&seen), aggregatorsLink(&seen), verdictsLink(&seen), redisLink(&seen)},
		enforcerLinks(&seen)...)}
	c.Notices = notices(&seen)
	for i := range c.Links {
		l := &c.Links[i]
		l.Since = now.remember(was, "link "+l.Name, l.Level, o.Now)
	}
	for i := range c.Notices {
		n := &c.Notices[i]
		if since := now.remember(was, "notice "+n.Name, n.Level, o.Now); n.Since.IsZero() {
			n.Since = since
		}
	}
	return c, now
}

func (m *Memory) remember(was Memory, name string, level Level, now time.Time) time.Time {
	is, known := was.since[name]
	if !known || is.level != level {
		is = mark{level, now}
	}
	m.since[name] = is
	return is.at
}

// meet notes who answers, and keeps who did within the hour.
func (m *Memory) meet(was Memory, o *Observations) {
	for name, at := range was.members {
		if o.Now.Sub(at) < forgetMember {
			m.members[name] = at
		}
	}
	m.most, m.mostAt = was.most, was.mostAt
	if !o.Cluster.Known(o.Now) {
		return
	}
	for i := range o.Cluster.Value.Members {
		m.members[o.Cluster.Value.Members[i].Instance] = o.Now
	}
	if n := len(o.Cluster.Value.Members); n >= m.most || o.Now.Sub(m.mostAt) >= forgetMember {
		m.most, m.mostAt = n, o.Now
	}
}

// gone returns the aggregators that answered within the hour and are neither there nor replaced: there are
// fewer than there were.
func (m *Memory) gone(o *Observations) (names []string) {
	if !o.Cluster.Known(o.Now) {
		return nil
	}
	there := o.Cluster.Value.Members
	for name := range m.members {
		known := func(s api.Status) bool { return s.Instance == name }
		missing := func(s api.MissingMember) bool { return s.Instance == name }
		if !slices.ContainsFunc(there, known) && !slices.ContainsFunc(o.Cluster.Value.Missing, missing) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { // the latest that answered first
		return cmp.Or(m.members[b].Compare(m.members[a]), strings.Compare(a, b))
	})
	lost := m.most - len(there) - len(o.Cluster.Value.Missing)
	return names[:max(0, min(len(names), lost))]
}

// backlog holds ends of the verdict topic that Redis had not reached at some time. Zero: there were none. Owners' own records for
// strict limits come all the time, so that there is nearly always something: only these ends say how late Redis is.
type backlog struct {
	since time.Time
	ends  map[int32]int64
}

// look returns the backlog itself while Redis has not reached its ends, and then that of now.
func (b backlog) look(o *Observations) backlog {
	if !o.Kafka.Known(o.Now) || !o.Redis.Known(o.Now) {
		return b
	}
	for p, end := range b.ends {
		if o.Redis.Value.reached(p) < min(end, o.Kafka.Value.Verdicts.Ends[p]) {
			return b
		}
	}
	if lacking(o) == 0 {
		return backlog{}
	}
	return backlog{o.Now, maps.Clone(o.Kafka.Value.Verdicts.Ends)}
}
