package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// tell applies a denied request's event: it tells limits under which something counts, or is in force, unless a later
// event has, and a verdict in force is judged by that.
func (b *book) tell(in Input, exempt func(*Limit, event.Micros) bool) (changes []bookChange) {
	for _, hit := range in.Hits {
		l := b.limit(hit.Limit)
		counted := l.Window.Latest(l.window)
		if in.At < max(counted, l.toldAt) || in.At >= l.matters() {
			continue
		}
		before := l.live()
		if len(l.window) == 0 || in.At >= l.leftUntil(counted) {
			before = Unlimited
		}
		l.tier, l.told, l.toldAt = hit.Tier, hit.Told, in.At
		t, live, v := max(in.At, counted), l.live(), &l.slots[0]
		spared, was := exempt(hit.Limit, t), *v
		if v.on && t < v.until {
			l.inForce(v, live, in.At, t, false, false, spared)
			change := bookChange{Rule: l.Name, Mode: l.Rule.Mode, Count: l.Window.Count(l.window), Limit: live, Since: v.since, Until: v.until}
			switch {
			case !v.on:
				if change.State, change.Since, change.Until = verdict.Clear, t, t; live == Unlimited {
					change.Limit = was.limit
				}
				v.lastUntil = t
				changes = append(changes, change)
			case v.until != was.until:
				changes = append(changes, change)
			}
		}
		if !l.Quota || l.Rule.Mode == verdict.Shadow || spared || before == Unlimited || live == before {
			continue
		}
		left := Left{Limit: l.Limit, Of: live, Count: l.Window.CountAt(l.window, t), Since: t, Until: t}
		if live == Unlimited {
			left.Of, left.Count = 0, 0
		} else if left.Until = l.leftUntil(t); l.Window.Kind.Slides() {
			left.Until = counted + l.Window.Per
		}
		b.left = append(b.left, left)
	}
	return changes
}

// matters is until when something counts, is in force, or is remembered.
func (l *bookLimit) matters() event.Micros {
	until := l.Window.Spent(l.window)
	for _, v := range l.slots {
		if v.on {
			until = max(until, v.until)
		}
		if v.falls > 0 && l.Rule.Then.Escalates {
			times := 1
			if l.Rule.Then.ByStep {
				times = min(v.falls, len(l.Rule.Then.Steps))
			}
			until = max(until, v.lastUntil+event.Micros(times)*l.Rule.Then.Forget)
		}
	}
	if l.reset != event.NoTime {
		until = max(until, l.reset+l.Window.Lateness+1)
	}
	for _, given := range l.warned {
		until = max(until, given+l.PerMax)
	}
	return until
}
