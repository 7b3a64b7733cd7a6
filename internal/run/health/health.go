// Package health judges an installation. What can be wrong with it stands in one table, Findings: how it is judged,
// what is said and done about it, and which alert fires. The doctor gathers observations once, the console's watch polls
// them; notifications, alerts and the runbooks' table read the same rows. It is pure: no I/O, no clock.
package health

import "time"

// Level is the state of a link, a fault or an installation. Unknown is not OK: a dead link never looks green.
type Level string

// The levels, from the best to the worst.
const (
	OK      Level = "ok"
	Unknown Level = "unknown"
	Warn    Level = "warn" // works, but is a risk
	Bad     Level = "bad"  // does not work, or loses data
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

// Bounds are from when on something is a warning, and from when on it is bad. An alert that wakes somebody up compares
// with the latter.
type Bounds struct{ Warn, Bad time.Duration }

// Level judges a length of time.
func (b Bounds) Level(d time.Duration) Level {
	switch {
	case d >= b.Bad:
		return Bad
	case d >= b.Warn:
		return Warn
	}
	return OK
}

// What is too much, wherever it is judged.
var (
	Late      = Bounds{5 * time.Second, 30 * time.Second} // a partition's counts behind its events
	Behind    = Bounds{5 * time.Second, 10 * time.Second} // what Redis or an enforcer has, behind the verdicts
	Heartbeat = Bounds{3 * time.Second, 10 * time.Second} // of publishers: after three that are missing enforcers look for themselves
	Clock     = Bounds{time.Second, time.Minute}          // apart; strict limits deny from a minute on
)

const (
	// ClockMargin is the error of a comparison by an answer or a scrape, which takes time.
	ClockMargin = time.Second
	// CertificateDue is the time before its end from which on a certificate is a warning: people need days for a new one.
	CertificateDue = 14 * 24 * time.Hour
	// MemoryWarn is the share of Redis' memory from which on it may soon be full, in percent.
	MemoryWarn = 80
)

// Link is one link of the chain from producers to enforcers.
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
