package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// climb takes the step of a verdict that is issued. A pass over changed rules judges what was
// counted before: where nothing was since the last verdict's end, the user did nothing for which
// the next one would be longer.
func (l *Limit) climb(s *keystate.Slot, f *facts) {
	s.Steps = l.Rule.Then.remembered(s.Steps, s.Ended, f.latest)
	if f.pass && s.Steps > 0 && l.Window.Latest(f.window) <= s.Ended {
		s.Ended = min(s.Ended, s.Block.Since-1)
		return
	}
	s.Steps++
	s.Ended = s.Block.Since
}

// remembered returns how many of the steps that were taken until a verdict's end still count at a moment. Who has
// repeated the last step comes back from there: one step less than that.
func (t *Then) remembered(steps uint64, ended, at event.Micros) uint64 {
	if steps == 0 || at < keystate.Later(ended, t.Forget) {
		return steps
	}
	if !t.ByStep {
		return 0
	}
	steps = min(steps, uint64(len(t.Steps)))
	return steps - min(steps, uint64((at-ended)/t.Forget))
}

// forgotten returns the moment from which none of the steps counts.
func (t *Then) forgotten(steps uint64, ended event.Micros) event.Micros {
	if !t.ByStep {
		return keystate.Later(ended, t.Forget)
	}
	return keystate.Later(ended, t.Forget*event.Micros(min(steps, uint64(len(t.Steps)))))
}

// withdraw forgets a block that the limit as it is now would not have issued, and the step that it
// took. The end of the verdict before is not known any more: it was before this one began, and
// before what this one was for was counted.
func (l *Limit) withdraw(s *keystate.Slot, f *facts) {
	climbed := s.Climbed()
	since := s.Block.Since
	s.Had = false
	switch {
	case !l.Rule.Then.Escalates || climbed && s.Steps <= 1:
		s.Steps, s.Ended = 0, 0
	case climbed:
		s.Steps--
		if latest := l.Window.Latest(f.window); latest != event.NoTime {
			since = min(since, latest)
		}
		s.Ended = since - 1
	}
}
