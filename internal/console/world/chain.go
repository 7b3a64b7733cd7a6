package world

import "time"

// Level is how something is. What is not known is Unknown: a dead link never looks green.
type Level string

// The levels, from the best to the worst.
const (
	OK      Level = "ok"
	Unknown Level = "unknown"
	Warn    Level = "warn"
	Bad     Level = "bad"
)

var ranks = map[Level]int{OK: 0, Unknown: 1, Warn: 2, Bad: 3}

// Compare is below 0 if the level is better than the other one, and above 0 if it is worse.
func (l Level) Compare(other Level) int { return ranks[l] - ranks[other] }

// Worse returns the worse of two levels.
func (l Level) Worse(other Level) Level {
	if ranks[other] > ranks[l] {
		return other
	}
	return l
}

// Link is one link of the chain.
type Link struct {
	Name    string    // producers, events, aggregators, verdicts, redis, or enforcer:ID
	Title   string    // for people
	Level   Level     // its light
	Cause   string    // why it is not ok, in words; if it is ok, what it does
	Plain   string    // Cause without addresses and what programs said, for readers whom nobody knows; "": there is none
	Do      string    // what to do about it; "" if nothing
	Runbook string    // the section of docs/runbooks.md, such as "redis-down"; "" if nothing
	Since   time.Time // since when the level is this
	Read    time.Time // when what this is judged by was read; zero: never
}

// Chain is all links in the order of an event's path, and what does not belong to one of them.
type Chain struct {
	Links   []Link
	Notices []Notice // the worst first
}

// Notice is a line of the banner.
type Notice struct {
	Name    string // stable: kill-switch, fuse, rules-rejected, …
	Level   Level
	Text    string
	Do      string
	Runbook string
	Link    string // the console's page about it; "" is none
	Since   time.Time
}

// Worst returns the worst level of all links and notices; Unknown if there are no links.
func (c *Chain) Worst() Level {
	if len(c.Links) == 0 {
		return Unknown
	}
	worst := OK
	for i := range c.Links {
		worst = worst.Worse(c.Links[i].Level)
	}
	for i := range c.Notices {
		worst = worst.Worse(c.Notices[i].Level)
	}
	return worst
}
