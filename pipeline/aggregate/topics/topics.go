// Package topics creates the engine's Kafka topics before they are used, and checks existing ones.
//
// goka would create them itself, but members of a group that start together for the first time
// would race, and goka's settings lose data.
package topics

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// Names are the topics and the consumer group of one prefix.
type Names struct {
	Events      string // emitted by applications
	Loop        string // events forwarded between owners; the name is goka's
	Table       string // the changelog of the states; the name is goka's
	Verdicts    string // compacted: the source of truth for verdicts
	Audit       string // every verdict and command
	Rules       string // versions of the rules
	DeadLetters string // malformed records
	Group       string // the consumer group
}

// NamesOf returns the names for a prefix, such as "tallygate".
func NamesOf(prefix string) Names {
	return Names{
		Events: prefix + ".events", Loop: prefix + "-loop", Table: prefix + "-table",
		Verdicts: prefix + ".verdicts", Audit: prefix + ".audit", Rules: prefix + ".rules",
		DeadLetters: prefix + ".dead-letters", Group: prefix,
	}
}

// All returns the topics.
func (n Names) All() []string {
	return []string{n.Events, n.Loop, n.Table, n.Verdicts, n.Audit, n.Rules, n.DeadLetters}
}

// Config configures the names and creation of topics. Existing topics keep their settings. The zero
// value is ready to use.
type Config struct {
	// Prefix begins all names. Zero is "tallygate".
	Prefix string

	// Partitions is the number for new topics: events, loop, table, verdicts, audit and dead
	// letters. It can never be changed later. If some of the first four exist, all get as many as
	// most of them have. Zero is 12.
	Partitions int32

	// Replication is the replication factor of new topics. Zero is 3, or the number of brokers if
	// that is less.
	Replication int16

	// ProducerTime keeps the producers' timestamps on events. Otherwise events must carry the
	// broker's time of arrival, which no producer can forge.
	ProducerTime bool

	// How long new topics keep records. Zero is 7 days for events and the loop, 90 days for
	// verdicts, 30 for the audit and 14 for dead letters. Verdicts must be kept for longer than the
	// longest block.
	EventRetention, LoopRetention, VerdictRetention, AuditRetention, DeadLetterRetention time.Duration

	// LongestVerdict is the time for which the rules need verdicts. They are kept for as long, if that is more than
	// VerdictRetention. Zero is unknown.
	LongestVerdict time.Duration
}

// Layout describes the topics once the missing ones have been created.
type Layout struct {
	Names      Names
	Partitions int32

	// IDs are the topics' ids by name, never zero. They distinguish a topic from a later one of the
	// same name.
	IDs map[string]sarama.Uuid

	// MaxBytes is each topic's max.message.bytes by name; 0 if this client may not read it.
	MaxBytes map[string]int

	// VerdictRetention is the retention of verdicts; 0 if there is no limit, or it is unknown.
	VerdictRetention time.Duration

	// Advice lists the settings that are worse than recommended, and how to fix them.
	Advice []string
}

// defaultPartitions applies if Config sets no number.
const defaultPartitions = 12

const day = 24 * time.Hour

func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, "tallygate")
	c.EventRetention = cmp.Or(c.EventRetention, 7*day)
	c.LoopRetention = cmp.Or(c.LoopRetention, 7*day)
	c.VerdictRetention = max(cmp.Or(c.VerdictRetention, 90*day), c.LongestVerdict)
	c.AuditRetention = cmp.Or(c.AuditRetention, 30*day)
	c.DeadLetterRetention = cmp.Or(c.DeadLetterRetention, 14*day)
	return c
}

// maxName is Kafka's bound on the length of a topic's name.
const maxName = 249

func (c Config) validate() error {
	var errs []error
	for _, n := range NamesOf(c.Prefix).All() {
		if len(n) > maxName || strings.ContainsFunc(n, illegal) {
			errs = append(errs, fmt.Errorf("topic name %q: up to %d letters, digits, '.', '_' and '-' make one", n, maxName))
		}
	}
	if c.Partitions < 0 || c.Replication < 0 {
		errs = append(errs, errors.New("negative Partitions or Replication"))
	}
	for _, d := range []time.Duration{c.EventRetention, c.VerdictRetention, c.AuditRetention, c.DeadLetterRetention} {
		if d < time.Millisecond {
			errs = append(errs, fmt.Errorf("a retention of %v is too short", d))
		}
	}
	if c.LoopRetention < minLoopRetention {
		errs = append(errs, fmt.Errorf("a LoopRetention of %v, at least %v is needed: what waits there longer is lost", c.LoopRetention, minLoopRetention))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("topics: config: %w", err)
	}
	return nil
}

func illegal(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._-", r):
		return false
	}
	return true
}
