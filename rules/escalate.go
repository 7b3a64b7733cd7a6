package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// climb takes the step of a verdict that is issued. A pass over changed rules judges what was
// counted before: where nothing was since the last verdict's end, the user did nothing for which
// the next one would be longer.
func (l *Limit) climb(s *keystate.Slot, f *facts) {
	if s.Steps > 0 && f.latest >= keystate.Later(s.Ended, l.Rule.Then.Forget) {
		s.Steps = 0
	}
	if f.pass && s.Steps > 0 && l.Window.Latest(f.window) <= s.Ended {
		s.Ended = min(s.Ended, s.Block.Since-1)
		return
	}
	s.Steps++
	s.Ended = s.Block.Since
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
