package world

import (
	"time"

	"github.com/tallygate/tallygate/internal/status"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// Reading is what one poll has learned. While its attempts fail, the last value stays, with its age.
type Reading[T any] struct {
	Value   T
	At      time.Time // of Value; zero: there is none yet
	Err     error     // of the last attempt; nil: it succeeded, or there was none
	Failing time.Time // since when attempts fail; zero: they do not
}

// patience is the age from which on a reading is not believed any more: an attempt has hung that long.
const patience = 4 * time.Second

// Known reports whether the reading tells how things are now.
func (r *Reading[T]) Known(now time.Time) bool {
	return !r.At.IsZero() && r.Err == nil && now.Sub(r.At) <= patience
}

// took enters the result of an attempt.
func (r *Reading[T]) took(v T, err error, at time.Time) {
	if err == nil {
		r.Value, r.At, r.Err, r.Failing = v, at, nil, time.Time{}
		return
	}
	r.Err = err
	if r.Failing.IsZero() {
		r.Failing = at
	}
}

// Readings are all of them.
type Readings struct {
	Now        time.Time
	Began      time.Time // of the polls
	Kafka      Reading[Kafka]
	Cluster    Reading[Cluster]
	Redis      Reading[Redis]
	Enforcers  Reading[[]presence.Beat]
	Exemptions Reading[Exemptions]
	Enforced   Reading[Enforced]

	NoRedis bool // none is configured
}

// Cluster is what an aggregator says of all.
type Cluster = status.Cluster

// Enforced is what decision servers say beside their beats.
type Enforced struct {
	Latency []status.Sample // histograms from an event to its denial
	Blocked int             // keys with an enforced block, of the server that has most; -1: none says

	Certificates []Certificates
}

// Certificates are when those of a program expire, by its options.
type Certificates struct {
	Program string
	Expiry  []status.Sample
}

// Kafka is what brokers say of the topics.
type Kafka struct {
	Brokers  int
	Events   Topic
	Verdicts Topic
	// Committed are the group's offsets in the event topic; nil if they cannot be read.
	Committed map[int32]int64
	// Moved is when an end of the event topic was first seen where it is now; zero: it has not moved since the
	// polls began.
	Moved time.Time
}

// Topic is a topic.
type Topic struct {
	Name       string
	Missing    bool
	Partitions int
	Leaderless []int32 // partitions that nobody leads: they can be neither read nor written
	Thin       []int32 // partitions some of whose replicas are out of sync
	Ends       map[int32]int64
}

// End is the sum of the partitions' ends.
func (t *Topic) End() (sum int64) {
	for _, end := range t.Ends {
		sum += end
	}
	return sum
}

// Redis is what Redis says, all shards together.
type Redis struct {
	Version   string
	Latency   time.Duration // of the question
	Replica   bool          // it cannot be written
	Policy    string        // maxmemory-policy; "" if unknown
	Memory    int64
	MaxMemory int64 // 0: no bound
	Entries   int64 // verdicts in the blocklist; -1: unknown
	Written   bool  // every shard was written at least once
	Now       time.Time
	Beat      time.Time       // the oldest of the shards' latest heartbeats, by Redis' clock
	Applied   time.Time       // the oldest of the shards' \0applied; zero: a partition is being filled for the first time
	Reached   map[int32]int64 // of the verdict topic, by partition
	Shards    int             // how many the blocklist says it has; 0: it does not say
}

// Staleness is how far what Redis has is behind.
func (r *Redis) Staleness() time.Duration {
	if r.Applied.IsZero() {
		return -1
	}
	return max(0, r.Now.Sub(r.Applied))
}

// Exemptions are how many there are, and how many end soon.
type Exemptions struct {
	All    int
	Ending int // within an hour
	Next   time.Time
}
