package rules

import "github.com/tallygate/tallygate/pipeline/event"

// A slot's ended is when the last verdict ends, which under escalate says what the next one is. While a block holds that was given
// once more for what an earlier one was given for, it stays the earlier one's end: so it lies before the block's beginning, and tells
// that the block has climbed no step.

// climb takes the step of a verdict that falls. A pass over changed rules judges what was counted before: where nothing was since
// the last verdict's end, the user did nothing for which the next one would be longer.
func (s *slot) climb(l *Limit, f *facts) {
	if s.steps > 0 && f.latest >= later(s.ended, l.Rule.Then.Forget) {
		s.steps = 0
	}
	if f.pass && s.steps > 0 && l.Window.Latest(f.window) <= s.ended {
		s.ended = min(s.ended, s.block.since-1)
		return
	}
	s.steps++
	s.ended = s.block.since
}

// climbed reports whether the block that holds has taken a step.
func (s *slot) climbed() bool { return s.ended >= s.block.since }

// lasts notes the end of a block that holds.
func (s *slot) lasts() {
	if s.climbed() {
		s.ended = s.block.until
	}
}

// over notes the end of a block that has run out.
func (s *slot) over() {
	if s.had {
		s.ended, s.had = max(s.ended, s.block.until), false
	}
}

// takeBack forgets a block that the limit as it is now would not have let fall, and the step that it took. The end of the
// verdict before is not known any more: it was before this one began, and before what this one was for was counted.
func (s *slot) takeBack(l *Limit, f *facts) {
	climbed := s.climbed()
	since := s.block.since
	s.had = false
	switch {
	case !l.Rule.Then.Escalates || climbed && s.steps <= 1:
		s.steps, s.ended = 0, 0
	case climbed:
		s.steps--
		if latest := l.Window.Latest(f.window); latest != event.NoTime {
			since = min(since, latest)
		}
		s.ended = since - 1
	}
}

// lastEnd is when the last verdict ends.
func (s *slot) lastEnd() event.Micros {
	if s.had {
		return max(s.ended, s.block.until)
	}
	return s.ended
}
