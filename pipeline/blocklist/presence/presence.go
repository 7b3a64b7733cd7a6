// Package presence announces enforcers: each writes a Beat into Redis every few seconds, so that all of them are
// seen, those inside services too. docs/reference/redis.md describes the key.
//
// Nothing waits for it: an enforcer whose beats Redis refuses enforces as before, and is not seen.
package presence

import "time"

// Beat is an enforcer's account of itself. It names no user.
type Beat struct {
	ID      string    `json:"id"`   // random, one for each start
	Kind    string    `json:"kind"` // decision-server, or go: in a service
	Name    string    `json:"name"` // the operator's or service's name for it; else host:pid
	Version string    `json:"version"`
	URL     string    `json:"url,omitempty"` // where its /v1/check is; "" for services
	Started time.Time `json:"started"`
	At      time.Time `json:"at"` // of this beat, by the enforcer's clock

	// Of this beat, by Redis' clock, and how long ago that is by the same clock; filled in by List.
	Seen time.Time     `json:"-"`
	Age  time.Duration `json:"-"`

	Staleness float64   `json:"staleness_seconds"`   // of its table; -1 before the first snapshot
	Stale     bool      `json:"stale"`               // it answers as OnStale says
	Entries   int       `json:"entries"`             // verdicts in force
	Enabled   bool      `json:"enabled"`             // false: a kill switch allows everything
	OffCause  string    `json:"off_cause,omitempty"` // environment, file or program
	OffSince  time.Time `json:"off_since,omitzero"`

	Checks uint64 `json:"checks,omitempty"` // since the start; 0 where nobody counts them
	Denied uint64 `json:"denied,omitempty"`
	Error  string `json:"error,omitempty"` // why it cannot follow the blocklist, in one line
}

// The kinds of enforcers.
const (
	DecisionServer = "decision-server"
	Go             = "go" // a table inside a service
)

const (
	// Every is the interval between an enforcer's beats.
	Every = 2 * time.Second
	// GoneAfter is the age from which on an enforcer counts as gone: it has ended, or cannot reach Redis.
	GoneAfter = 4 * Every
	// ForgottenAfter is the age at which a last beat is removed.
	ForgottenAfter = time.Hour
)

// Gone reports whether a beat of List is so old that its enforcer has ended, or cannot reach Redis. One that
// was told to stop has removed its beat.
func (b *Beat) Gone() bool { return b.Age >= GoneAfter }

// Skew is by how much the enforcer's clock is ahead of Redis': negative if it is behind. It is exact to the
// time that a beat takes.
func (b *Beat) Skew() time.Duration { return b.At.Sub(b.Seen) }
