package admit

import (
	"sync"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
)

// doubt is for a key of which nobody can say whether its limits are reached: it denies, or lets the key
// pass, so that the others are asked for again without it.
func (t *attempt) doubt(one *ask, why string) *Permit {
	on := Open
	for _, by := range one.by {
		switch t.a.cfg.onDoubt(by.Rule.Name) {
		case Closed:
			return t.denyInDoubt(by, one.Key, why)
		case Local:
			on = Local
		}
	}
	if on == Local {
		by, ok := t.a.shares.take(t, one)
		if !ok {
			return &Permit{a: t.a, By: by, Key: one.Key, InDoubt: true, Reason: why + "; this process' share is used up", Numbers: Numbers{Limited: true}}
		}
	}
	t.logDoubt(letIn, one.by[0], why)
	t.inDoubt = why
	t.passed = append(t.passed, place{one.Key, one.inFlight})
	return nil
}

// shares are this process' counters of limits in doubt.
type shares struct {
	mu   sync.Mutex
	keys map[shareOf]*state
}

const maxShares = 10_000

type shareOf struct {
	limit rules.SectionHash
	key   string
}

type state struct {
	window []byte
	form   rules.SectionHash // of the limit's Names: what window is of
	held   event.Decimal
}

// share is a request's part of a limit in flight.
type share struct {
	of     *shares
	state  *state
	amount event.Decimal
}

func (s *share) release() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.state.held -= s.amount
}

// take counts a request under all limits of a key with Local, or under none; then it returns the limit
// that is used up.
func (s *shares) take(t *attempt, one *ask) (*rules.Limit, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := t.a.now().Wall
	var after [][]byte
	var states []*state
	for i, by := range one.by {
		w := &one.Wants[i]
		threshold := w.Threshold
		if threshold < 0 {
			threshold = w.Lowest
		}
		threshold = max(threshold/event.Decimal(t.a.cfg.Enforcers), min(threshold, event.One))
		st := s.state(by, one.Key)
		states = append(states, st)
		if by.InFlight {
			if st.held.Plus(w.Amount) > threshold {
				return by, false
			}
			after = append(after, nil)
			continue
		}
		had := by.Carry(st.window, st.form)
		window, added, _ := by.Window.AddSpent(append([]byte(nil), had...), max(now, by.Window.Latest(had)), w.Amount)
		if added.Count > threshold {
			return by, false
		}
		after = append(after, window)
	}
	for i, st := range states {
		if one.by[i].InFlight {
			st.held += one.Wants[i].Amount
			t.local = append(t.local, share{s, st, one.Wants[i].Amount})
			continue
		}
		st.window, st.form = after[i], one.by[i].Hash
	}
	return nil, true
}

// state returns a key's, under any of the limit's names. Where there are too many, one that holds nothing leaves.
func (s *shares) state(l *rules.Limit, key string) *state {
	if st := s.keys[shareOf{l.Hash, key}]; st != nil {
		return st
	}
	for _, name := range l.Names()[1:] {
		if st := s.keys[shareOf{name, key}]; st != nil {
			return st
		}
	}
	if s.keys == nil {
		s.keys = map[shareOf]*state{}
	}
	if len(s.keys) >= maxShares {
		for other, st := range s.keys {
			if st.held == 0 {
				delete(s.keys, other)
				break
			}
		}
	}
	st := &state{form: l.Hash}
	s.keys[shareOf{l.Hash, key}] = st
	return st
}
