package windows

import (
	"fmt"

	"github.com/tallygate/tallygate/event"
)

// slides is embedded by the kinds of sliding windows: the window is the Per before now, and there is none before it.
type slides struct{ onlyHead }

// defaultPanes is the number of a sliding window's panes unless its Resolution says otherwise.
const defaultPanes = 60

func (slides) validate(s *Spec) error {
	err := checkSpan("per", s.Per, 1)
	if err != nil || s.Exact {
		return err
	}
	if s.Resolution == 0 {
		s.Resolution = max(s.Per/defaultPanes, 1)
	}
	switch {
	case s.Resolution < 0 || s.Resolution > s.Per:
		return fmt.Errorf("windows: resolution %v is not between 1µs and per, %v", s.Resolution.Duration(), s.Per.Duration())
	case (s.Per-1)/s.Resolution >= MaxPanes:
		return fmt.Errorf("windows: resolution %v makes more than %d panes of %v", s.Resolution.Duration(), MaxPanes, s.Per.Duration())
	}
	return nil
}

func (slides) bounds(s *Spec, _ []byte, now event.Micros) (from, to event.Micros) {
	return now - s.Per, now
}

func (slides) counted(s *Spec, at event.Micros) event.Micros {
	if s.Exact {
		return at
	}
	return event.Micros(paneOf(s, at)+1) * s.Resolution
}

func (slides) before(s *Spec, at, latest event.Micros) bool { return at <= latest-s.Per }

// part is a window's amount at one time or pane.
type part struct {
	at event.Micros
	n  event.Decimal
}

// recount counts parts, oldest first, in the memory of a state, up to the latest time.
func recount(k adder, s *Spec, state []byte, parts []part, latest event.Micros) []byte {
	state = state[:0]
	for _, p := range parts {
		if p.n > 0 {
			state, _ = k.add(s, state, p.at, p.n)
		}
	}
	state, _ = k.add(s, state, latest, 0)
	return state
}

type adder interface {
	add(s *Spec, state []byte, at event.Micros, n event.Decimal) ([]byte, Added)
}

// paneOf is the pane that a time is in, counted from the epoch.
func paneOf(s *Spec, at event.Micros) int64 { return int64(floorDiv(at, s.Resolution)) }

// paneEnds is the moment from which a pane does not count any more.
func paneEnds(s *Spec, pane int64) event.Micros {
	return event.Micros(pane+1)*s.Resolution + s.Per
}

func slidingCells(s *Spec) (grain, offset, keeps event.Micros) {
	if s.Exact {
		return 1, 0, s.Per
	}
	return s.Resolution, 0, s.Resolution + s.Per
}
