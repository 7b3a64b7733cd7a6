package e2e

import (
	"cmp"
	"slices"
	"time"

	"github.com/tallygate/tallygate/event"
)

// permitAt is when an action was let in under a key.
func (a *strictAction) permitAt(key string) event.Micros {
	if at, ok := a.at[key]; ok {
		return at
	}
	return a.at[""]
}

// strictLog is what the clients did, by key: the times of the permits of what counts, and what was
// under way.
type strictLog struct {
	buys, items, sms, posts map[string][]event.Micros
	exports                 map[string][]strictAction
}

func (s *strictClients) byKey() strictLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := strictLog{map[string][]event.Micros{}, map[string][]event.Micros{}, map[string][]event.Micros{}, map[string][]event.Micros{}, map[string][]strictAction{}}
	for i := range s.log {
		a := &s.log[i]
		uid, item := "uid="+a.uid, "attrs.item="+a.item
		switch {
		case a.api == "report.export":
			l.exports[uid] = append(l.exports[uid], *a)
		case a.api == "sms.send":
			l.sms[uid] = append(l.sms[uid], a.permitAt(uid))
		case a.api == "post.write":
			l.posts[uid] = append(l.posts[uid], a.permitAt(uid))
		case a.success:
			l.buys[uid], l.items[item] = append(l.buys[uid], a.permitAt(uid)), append(l.items[item], a.permitAt(item))
		}
	}
	return l
}

// check holds the clients' own log against the limits: what was admitted and done, by the times of
// the permits, is never above one. It returns how often a limit was reached, and how many were admitted
// ahead.
func (s *strictClients) check() (full int, ahead uint64) {
	s.t.Helper()
	l := s.byKey()
	over := func(rule, key string, n float64, limit int, at any) {
		s.t.Helper()
		if full += int(n) / limit; n > float64(limit)+1e-6 {
			differencesFound.Add(1)
			s.t.Errorf("%s: %s has %v at %v, the limit is %d", rule, key, n, at, limit)
		}
	}
	for uid, at := range l.buys {
		for window, n := range perWindow(at, 10*event.Second) {
			over("fixed", uid, float64(n), 30, window)
		}
	}
	for uid, at := range l.posts {
		for window, n := range perWindow(at, 10*event.Second) {
			over("posts", uid, float64(n), 60, window)
		}
	}
	for item, at := range l.items {
		slices.Sort(at)
		for i := range at {
			from, _ := slices.BinarySearch(at, at[i]-15*event.Second+1)
			over("item", item, float64(i-from+1), 60, at[i])
		}
	}
	for uid, at := range l.sms {
		slices.Sort(at)
		for i := range at { // where windows begin their events say; so long a time has to do with two of them
			from, _ := slices.BinarySearch(at, at[i]-8*event.Second+1)
			over("begun", uid, float64(i-from+1), 2*15, at[i])
		}
		level, last := 0.0, event.Micros(0)
		for _, t := range at {
			level = max(0, level-float64(t-last)*20/float64(10*event.Second)) + 1
			last = t
			over("leak", uid, level, 20, t)
		}
	}
	for uid, list := range l.exports {
		n, at := mostUnderWay(list)
		over("exports", uid, float64(n), 3, at)
	}
	ahead = s.ahead.Load()
	for i := range s.enf {
		ahead += s.enf[i].Load().Stats().Ahead
	}
	s.t.Logf("admitted %d (%d ahead), denied %d, in doubt %d, errors %d; %d times a limit was reached", s.admitted.Load(), ahead, s.denied.Load(), s.doubted.Load(), s.failed.Load(), full)
	return full, ahead
}

func perWindow(at []event.Micros, length event.Micros) map[event.Micros]int {
	counts := map[event.Micros]int{}
	for _, t := range at {
		counts[t/length*length]++
	}
	return counts
}

// mostUnderWay is how many actions were under way at once, at most, and when.
func mostUnderWay(list []strictAction) (most int, when time.Time) {
	type edge struct {
		at time.Time
		by int
	}
	var edges []edge
	for _, a := range list {
		edges = append(edges, edge{a.began, 1}, edge{a.ended, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	n := 0
	for _, e := range edges {
		if n += e.by; n > most {
			most, when = n, e.at
		}
	}
	return most, when
}

// counted holds what the aggregators have counted against the clients' log. What is not strict has
// each success once. What is strict has no fewer: a permit whose event was too late counts as lost
// first, and its event is a repeat.
func (s *strictClients) counted(p *Process) {
	s.t.Helper()
	for key, at := range s.byKey().buys {
		reply, err := explainKey(p, key)
		if err != nil {
			s.t.Fatal(err)
		}
		got := map[string]int{"bought": -1, "sold": -1}
		for i := range reply.list {
			x := &reply.list[i]
			got[x.Rule] = int(x.Count / event.One)
		}
		if got["bought"] != len(at) || got["sold"] < len(at) {
			differencesFound.Add(1)
			s.t.Errorf("%s: %d are counted, and %d under the strict rule; its clients did %d", key, got["bought"], got["sold"], len(at))
		}
		if lost := got["sold"] - len(at); lost > 0 {
			s.t.Logf("%s: %d permits more than were done count as lost", key, lost)
		}
	}
}
