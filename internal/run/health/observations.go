package health

import (
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// Reading is the latest answer to one question. While its attempts fail, the last value stays, with its age.
type Reading[T any] struct {
	Value   T
	At      time.Time // of Value; zero: there is none yet
	Err     error     // of the last attempt; nil: it succeeded, or there was none
	Failing time.Time // since when attempts fail; zero: they do not
}

// Patience is the age from which on a reading is not believed any more: an attempt has hung that long.
const Patience = 4 * time.Second

// Known reports whether the reading is of now: it succeeded, within Patience.
func (r *Reading[T]) Known(now time.Time) bool {
	return !r.At.IsZero() && r.Err == nil && now.Sub(r.At) <= Patience
}

// Took enters the result of an attempt.
func (r *Reading[T]) Took(v T, err error, at time.Time) {
	if err == nil {
		r.Value, r.At, r.Err, r.Failing = v, at, nil, time.Time{}
		return
	}
	r.Err = err
	if r.Failing.IsZero() {
		r.Failing = at
	}
}

// Observations are all readings of an installation: what findings are judged by.
type Observations struct {
	Now        time.Time
	Began      time.Time // of the polls
	Kafka      Reading[Kafka]
	Cluster    Reading[Cluster]
	Redis      Reading[Redis]
	Enforcers  Reading[[]presence.Beat]
	Exemptions Reading[Exemptions]
	Enforced   Reading[Enforced]

	NoRedis   bool          // none is configured
	LateAfter time.Duration // which lag is told, where somebody has said so; 0: as Late says
	Doctor    *Once         // nil: the console looks, again and again

	left   []string  // aggregators that have gone, by what was seen before
	behind time.Time // since when Redis lacks verdicts, by what was seen before; zero: it does not
}

// Once holds the doctor's observations: one look, with the rights of an aggregator.
type Once struct {
	Bootstrap string // the brokers, for command lines
	Prefix    string
	Started   bool   // the group has counted something
	Lag       string // of the group, in words
	Clocks    []Offset
	Strict    Offset // of the clock by which a shard counts strict limits, from Redis'
}

// Offset compares a machine's clock with the doctor's.
type Offset struct {
	Name   string
	Ahead  time.Duration
	Margin time.Duration // the error of the measurement: half the round trip
}

// who looks, in words.
func (o *Observations) who() string {
	if o.Doctor != nil {
		return "the doctor"
	}
	return "the console"
}

// Cluster is an aggregator's answer about all members. The doctor makes it of Kafka's answer about the group: there LagSeconds is a
// lower bound, and Rules.Name the hash of a member's rules.
type Cluster = api.Cluster

// Enforced holds answers of decision servers that their beats do not have.
type Enforced struct {
	Latency []api.Sample // histograms from an event to its denial
	Blocked int          // keys with an enforced block, of the server that has most; -1: none says

	Certificates []Certificates
}

// Certificates holds the ends of a program's certificates, by its options.
type Certificates struct {
	Program string
	Expiry  []api.Sample
}

// CertificateMetric has a sample for each certificate of a program: its end, in Unix seconds; 0: it cannot be read.
const CertificateMetric = "tallygate_certificate_expiry_timestamp_seconds"

// Kafka holds answers of the brokers.
type Kafka struct {
	Brokers  int
	Events   Topic
	Verdicts Topic
	More     []Topic // others, of which only partitions and replicas are known
	// Committed are the group's offsets in the event topic; nil if they cannot be read.
	Committed map[int32]int64
	// Moved is the time at which the event topic was first seen to end here; zero: it has not moved since the
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
	Later      map[int32]int64 // ends after Redis was read; nil: unknown
}

// End is the sum of the partitions' ends.
func (t *Topic) End() (sum int64) {
	for _, end := range t.Ends {
		sum += end
	}
	return sum
}

// Redis holds answers of the primaries.
type Redis struct {
	Now     time.Time     // by its clock
	Latency time.Duration // of the question
	Servers []Server      // the primaries that tell how they are
	Shards  []Shard       // of the blocklist, in order
}

// Server is a primary of a Cluster, or the one server.
type Server struct {
	Name      string // Redis, or with its address
	Version   string // of Redis' protocol
	Valkey    string // the version of Valkey; "": it is Redis
	Role      string // master or slave; "" if unknown
	Primary   string // whose replica it is
	Loading   bool
	Policy    string // maxmemory-policy; "" if unknown
	Memory    int64
	MaxMemory int64 // 0: no bound
}

// Replica reports whether it is known to be one.
func (s *Server) Replica() bool { return s.Role != "" && s.Role != "master" }

// Shard is a part of the blocklist.
type Shard struct {
	Written bool      // at least once
	Of      int       // how many shards the blocklist has, as its publishers say; 0: they do not
	Entries int64     // verdicts; -1: unknown
	Beat    time.Time // the latest heartbeat, by Redis' clock
	Applied time.Time // in step up to here; zero: a partition is being filled for the first time
	Reached map[int32]int64
}

// Entries are the verdicts in the blocklist; -1: unknown.
func (r *Redis) Entries() (n int64) {
	for i := range r.Shards {
		if r.Shards[i].Entries < 0 {
			return -1
		}
		n += r.Shards[i].Entries
	}
	return n
}

// reached returns the offset up to which Redis has a partition of the verdict topic.
func (r *Redis) reached(partition int32) int64 {
	if len(r.Shards) == 0 {
		return 0
	}
	return r.Shards[int(partition)%len(r.Shards)].Reached[partition]
}

// written reports whether each shard was, at least once.
func (r *Redis) written() bool {
	for i := range r.Shards {
		if !r.Shards[i].Written {
			return false
		}
	}
	return true
}

// staleness returns the age of the blocklist's oldest shard; below 0: one is being filled for the first time.
func (r *Redis) staleness() (most time.Duration) {
	for i := range r.Shards {
		if r.Shards[i].Applied.IsZero() {
			return -1
		}
		most = max(most, r.Now.Sub(r.Shards[i].Applied))
	}
	return most
}

// Exemptions counts them, and those that end soon.
type Exemptions struct {
	All    int
	Ending int // within an hour
	Next   time.Time
}
