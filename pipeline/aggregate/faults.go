package aggregate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tallygate/tallygate/api"
)

// fault is a part of an instance that Kafka does not serve.
type fault struct {
	since, last time.Time // the first and the last error in a row; zero: there was none
	err         error
	over        bool // it has worked since
}

const (
	// faultAgain is the time within which another error continues the same fault: a partition whose appends are
	// refused is taken over, works for a moment, and fails again.
	faultAgain = 15 * time.Second
	// faultOver is the time for which something has to work before its fault is over, if it has failed before.
	faultOver = 4 * time.Second
)

// note takes in an attempt's end.
func (f *fault) note(err error) {
	if err == nil {
		f.over = true
		return
	}
	now := time.Now()
	if f.since.IsZero() || f.over && now.Sub(f.last) > faultAgain {
		f.since = now
	}
	f.last, f.err, f.over = now, err, false
}

// is reports whether the fault lasts.
func (f *fault) is(now time.Time) bool {
	return f.err != nil && (!f.over || now.Sub(f.last) < faultOver)
}

// faults are those of an instance, by what it tries.
type faults struct {
	mu sync.Mutex
	of map[string]*fault
}

// inGroup is being a member of the group.
const inGroup = "being a member of the group"

// note takes in an attempt's end.
func (s *faults) note(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]*fault{}
	}
	if s.of[what] == nil {
		s.of[what] = &fault{}
	}
	s.of[what].note(err)
}

func (s *faults) now(at time.Time) (all []fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.of {
		if f.is(at) {
			all = append(all, *f)
		}
	}
	return all
}

const (
	// silentFor is the time without an answer to a fetch, with an error, after which Kafka is said to be in trouble;
	// and quietFor, without one. Brokers answer ten times a second.
	silentFor = time.Second
	quietFor  = 3 * time.Second
)

// errQuiet counts as a timeout.
var errQuiet = fmt.Errorf("no broker answers fetches: %w", context.DeadlineExceeded)

// kafkaTrouble returns what Kafka does not do for this instance now; nil if all is well. Of several faults it
// is the one that somebody has to mend: a refusal before a server that is away, and what is older first.
func (a *instance) kafkaTrouble(at time.Time) *api.Trouble {
	all := a.faults.now(at)
	a.mu.RLock()
	for _, o := range a.owns {
		o.mu.Lock()
		if o.fault.is(at) {
			all = append(all, o.fault)
		}
		o.mu.Unlock()
	}
	a.mu.RUnlock()
	for _, p := range a.owned() {
		if !p.Live() {
			continue
		}
		switch heard, asked, err := p.Reading(); {
		case !asked:
		case err != nil && at.Sub(heard) > silentFor:
			all = append(all, fault{since: heard, err: err})
		case at.Sub(heard) > quietFor:
			all = append(all, fault{since: heard, err: errQuiet})
		}
	}
	return worst(all)
}

// worst returns the trouble that the most important fault is.
func worst(all []fault) (is *api.Trouble) {
	rank := map[string]int{reasonAuth: 3, reasonReplicas: 2, reasonCut: 2, reasonCorrupt: 2, reasonAway: 1, reasonTimeout: 1, reasonLeader: 1}
	for i := range all {
		f := &all[i]
		reason := reasonOf(f.err)
		if rank[reason] == 0 {
			continue // not Kafka's
		}
		if is == nil || rank[reason] > rank[is.Reason] || rank[reason] == rank[is.Reason] && f.since.Before(is.Since) {
			is = &api.Trouble{Since: f.since.UTC(), Reason: reason, Error: f.err.Error()}
		}
	}
	return is
}
