// Package topics creates the engine's Kafka topics before anything uses them, and checks
// those that exist.
//
// Members of one group that start together for the first time would race on goka's own
// creation of them, and goka's settings lose data.
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
	Events      string // what applications emit
	Loop        string // what one partition's owner forwards to another; goka's name for it
	Table       string // the changelog of the states; goka's name for it
	Verdicts    string // compacted: the truth about verdicts
	Audit       string // every verdict and command
	Rules       string // the rule sets, by version
	DeadLetters string // records that are no events
	Group       string // the consumer group
}

// NamesOf returns the names that go with a prefix, such as "tallygate".
func NamesOf(prefix string) Names {
	return Names{
		Events: prefix + ".events", Loop: prefix + "-loop", Table: prefix + "-table",
		Verdicts: prefix + ".verdicts", Audit: prefix + ".audit", Rules: prefix + ".rules",
		DeadLetters: prefix + ".dead-letters", Group: prefix,
	}
}

// All lists the topics.
func (n Names) All() []string {
	return []string{n.Events, n.Loop, n.Table, n.Verdicts, n.Audit, n.Rules, n.DeadLetters}
}

// Config says how topics are called and created. What exists keeps its settings.
type Config struct {
	// Prefix of all names. Zero is "tallygate".
	Prefix string

	// Partitions of new topics: events, loop, table, verdicts, audit and dead letters. Their
	// number can never be changed later; if some of the first four exist, all get as many
	// as most of them have. Zero is 12.
	Partitions int32

	// Replication is the replication factor of new topics. Zero is 3, or as many brokers as
	// there are.
	Replication int16

	// ProducerTime leaves the producers' timestamps on events. Without it they must carry the
	// broker's time of arrival, which no producer can forge.
	ProducerTime bool

	// How long new topics keep records. Zero is 7 days for events and the loop, 90 days for
	// verdicts, 30 for the audit and 14 for dead letters. Verdicts must be kept for longer
	// than the longest block.
	EventRetention, LoopRetention, VerdictRetention, AuditRetention, DeadLetterRetention time.Duration
}

// Layout is what there is, once the missing topics have been created.
type Layout struct {
	Names      Names
	Partitions int32

	// IDs are the topics' ids, by name, never zero: they tell a topic from one of the same
	// name that was created later.
	IDs map[string]sarama.Uuid

	// MaxBytes is each topic's max.message.bytes, by name; 0 where it may not be read.
	MaxBytes map[string]int

	// Advice says which settings are worse than they should be, and how to mend them.
	Advice []string
}

// defaultPartitions is how many there are when nobody says.
const defaultPartitions = 12

const day = 24 * time.Hour

func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, "tallygate")
	c.EventRetention = cmp.Or(c.EventRetention, 7*day)
	c.LoopRetention = cmp.Or(c.LoopRetention, 7*day)
	c.VerdictRetention = cmp.Or(c.VerdictRetention, 90*day)
	c.AuditRetention = cmp.Or(c.AuditRetention, 30*day)
	c.DeadLetterRetention = cmp.Or(c.DeadLetterRetention, 14*day)
	return c
}

// maxName is Kafka's bound on a topic's name.
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
