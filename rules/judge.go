package rules

import (
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/windows"
)

// outcome is what became of a limit's block by one event.
type outcome uint8

const (
	none  outcome = iota // there is no block
	held                 // a block is in force, as it was
	moved                // its end passed what was published
	fell                 // a new one
)

// judge brings b, the limit's block if had is true, up to date with the window that an
// event went into. adds tells whether the event counted for something: others let nothing fall.
// A block that falls comes without its cause, which is the event.
//
// A block that is in force changes only when it is a quota and its exact end passes what was
// published; all the world knows is what was published, so that is what in force means.
func (l *Limit) judge(b *block, had bool, window []byte, added windows.Added, adds bool) outcome {
	latest := l.Window.Latest(window)
	if had && latest < b.until {
		if !adds || !l.Rule.Then.UntilReset {
			return held
		}
		return l.extend(b, window)
	}
	if !adds {
		return none
	}
	count, over := l.over(window, added)
	if !over {
		return none
	}
	*b = block{since: latest, count: count, limit: l.Limit}
	if l.Rule.Then.UntilReset {
		b.until = l.Window.Below(window, l.Limit)
	} else {
		b.until = later(latest, l.Rule.Then.Block)
	}
	return fell
}

// quiet reports whether a hit under a limit that has no block lets none fall either, so that
// there is nothing to judge: most events are such.
func (l *Limit) quiet(added windows.Added) bool {
	return !added.Ended && added.Count < l.Limit
}

// extend moves a quota's end when the window's is later than what was published, up to a
// multiple of the grain: a flood costs one publication a grain, and no block ends early.
func (l *Limit) extend(b *block, window []byte) outcome {
	until := l.Window.Below(window, l.Limit)
	if until <= b.until {
		return held
	}
	b.until = roundUp(until, l.Grain)
	b.count, b.limit = l.Window.Count(window), l.Limit
	return moved
}

// over tells whether the limit is reached (a quota) or exceeded (a penalty), and by which
// count: that of the window at the latest time, or for penalties that of the ended window which a
// late event went into. A quota on an ended window would already be over.
func (l *Limit) over(window []byte, added windows.Added) (event.Decimal, bool) {
	count := added.Count
	if added.Ended {
		count = l.Window.Count(window)
	}
	if l.Rule.Then.UntilReset {
		return count, count >= l.Limit
	}
	if count > l.Limit {
		return count, true
	}
	return added.Count, added.Ended && added.Count > l.Limit
}
