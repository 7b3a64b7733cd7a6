package api

import (
	"strings"
	"time"
)

// Status is the answer to GET /v1/status.
type Status struct {
	Component string    `json:"component" schema:"enum=aggregator|enforcer|console|notify"`
	Instance  string    `json:"instance"`          // its --instance-id, else its address
	Address   string    `json:"address,omitempty"` // where it is reached
	Version   string    `json:"version"`
	Commit    string    `json:"commit"`
	Go        string    `json:"go"`
	Started   time.Time `json:"started"`
	Now       time.Time `json:"now"` // by this program's clock
	Uptime    float64   `json:"uptime_seconds"`

	Ready bool   `json:"ready"`
	Why   string `json:"why,omitempty"` // why it is not ready, or what is wrong although it is

	Config []Setting     `json:"config"`                      // its options in the order of names, and its secrets, masked
	Errors []LoggedError `json:"errors" schema:"maxItems=50"` // the latest warnings and errors of its log, the latest first

	Aggregator *AggregatorStatus `json:"aggregator,omitempty"`
	Enforcer   *EnforcerStatus   `json:"enforcer,omitempty"`

	// Metrics are the program's metrics by name, those that the request asks for.
	Metrics map[string][]Sample `json:"metrics,omitempty"`
}

// Setting is one option as the program uses it.
type Setting struct {
	Name  string `json:"name" schema:"minLength=1"`
	Value string `json:"value"` // ••• for a secret that is set
	From  string `json:"from" schema:"enum=flag|environment|file|default"`
}

// LoggedError is a line of the log at level warn or error. Lines of one message are one entry.
type LoggedError struct {
	Level   string    `json:"level" schema:"enum=warn|error"`
	Message string    `json:"message"`
	Error   string    `json:"error,omitempty"` // the line's error
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Count   int       `json:"count" schema:"minimum=1"`
}

// AggregatorStatus is the part of a Status that only an aggregator has.
type AggregatorStatus struct {
	Rules      RulesStatus       `json:"rules"`
	Partitions []PartitionStatus `json:"partitions"`      // that it owns, in order
	Of         int32             `json:"of"`              // how many partitions there are; 0 while unknown
	Redis      *Trouble          `json:"redis,omitempty"` // absent while it works, or there is none
	Kafka      *Trouble          `json:"kafka,omitempty"` // the same
	// Differs are settings that must be the same for all members and are not, as this instance sees the others.
	Differs []Difference `json:"differs,omitempty"`
}

// Difference is a member of the group that differs from the one that tells of it.
type Difference struct {
	Instance string `json:"instance"` // the other member
	Address  string `json:"address,omitempty"`
	What     string `json:"what" schema:"enum=redis|shards|broker_time"`
	Here     string `json:"here"`  // the value of the member that tells
	There    string `json:"there"` // that of the other
}

func (d Difference) String() string { return d.Text("this instance") }

// Text puts the difference into words; teller is the member that tells.
func (d Difference) Text(teller string) string {
	who := d.Instance
	if d.Address != "" && d.Address != who {
		who += " at " + d.Address
	}
	switch {
	case d.What == DiffersRedis && d.There == RedisNone:
		return who + " has no Redis, and " + teller + " has one: the verdicts of the first one's partitions reach no enforcer"
	case d.What == DiffersRedis && d.Here == RedisNone:
		return teller + " has no Redis, and " + who + " has one: the verdicts of the first one's partitions reach no enforcer"
	case d.What == DiffersRedis:
		return who + " is not seen in the Redis of " + teller + ": it has another one, or does not reach it, and enforcers miss its verdicts"
	}
	return who + " has --" + strings.ReplaceAll(d.What, "_", "-") + " " + d.There + ", and " + teller + " has " + d.Here
}

// The values of Difference.What, and of Here and There where it is the Redis.
const (
	DiffersRedis      = "redis"
	DiffersShards     = "shards"
	DiffersBrokerTime = "broker_time"

	RedisNone    = "none"
	RedisThis    = "this one"
	RedisAnother = "not seen in this one"
)

// Trouble is a server that does not do what the program needs.
type Trouble struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason" schema:"minLength=1"` // as in the metrics: auth, memory, unreachable, …
	Error  string    `json:"error" schema:"minLength=1"`
}

// RulesStatus are the rules that an instance runs, and how its file is.
type RulesStatus struct {
	Version   int64     `json:"version"` // 0: they were not published
	Name      string    `json:"name"`
	File      string    `json:"file"`
	By        string    `json:"by"`                   // who published them
	At        time.Time `json:"at,omitzero"`          // absent for rules that were not published
	FileOK    bool      `json:"file_ok"`              // its own rule file is valid
	FileError string    `json:"file_error,omitempty"` // why it is not
	Differ    int       `json:"differ"`               // members of the group whose rules differ
	Blown     []string  `json:"blown,omitempty"`      // rules whose fuse has blown in a partition of this instance
}

// PartitionStatus is a partition that an instance owns.
type PartitionStatus struct {
	Partition       int32     `json:"partition"`
	State           string    `json:"state" schema:"enum=recovering|open|failed"`
	Events          float64   `json:"events_per_second"`
	Lag             int64     `json:"lag"` // records that are not counted yet
	LagSeconds      float64   `json:"lag_seconds"`
	LoopLag         int64     `json:"loop_lag"` // forwarded records that are not counted yet
	Keys            int       `json:"keys"`
	Bytes           int64     `json:"bytes"`               // in memory
	LastFetch       time.Time `json:"last_fetch,omitzero"` // when Kafka last answered one
	LastCheckpoint  time.Time `json:"last_checkpoint,omitzero"`
	TakenOver       time.Time `json:"taken_over,omitzero"`
	TakeoverSeconds float64   `json:"takeover_seconds"` // how long that took
	Takeovers       uint64    `json:"takeovers"`        // since the program started
	Failures        uint64    `json:"failures"`         // since the program started
}

// EnforcerStatus is the part that only an enforcer has.
type EnforcerStatus struct {
	Entries   int     `json:"entries"`                               // verdicts in force
	Staleness float64 `json:"staleness_seconds" schema:"minimum=-1"` // how far its table is behind; -1 before the first snapshot
	Stale     bool    `json:"stale"`                                 // it answers as --on-doubt says
	Enabled   bool    `json:"enabled"`                               // no kill switch allows everything
	OffCause  string  `json:"off_cause,omitempty" schema:"enum=environment|file|program"`

	OffSince time.Time `json:"off_since,omitzero"`
	Redis    *Trouble  `json:"redis,omitempty"`
}

// Sample is one value of a metric. Of a histogram there are its sum, its count, and its buckets.
type Sample struct {
	Labels  map[string]string `json:"labels,omitempty"`
	Value   float64           `json:"value" schema:"minimum="` // of a counter or gauge
	Sum     float64           `json:"sum,omitempty"`           // of a histogram
	Count   uint64            `json:"count,omitempty"`         // of a histogram
	Buckets []Bucket          `json:"buckets,omitempty"`       // of a histogram
}

// Bucket counts the observations that were at most Le. The last bucket, for all, is left out: it is Count.
type Bucket struct {
	Le    float64 `json:"le" schema:"minimum="`
	Count uint64  `json:"count"`
}

// Cluster is the answer to GET /v1/cluster: all aggregators of the group.
type Cluster struct {
	Members []Status `json:"members" schema:"minItems=1"` // in the order of their instances
	// Unowned are partitions that no answer has, each with a reason; in order.
	Unowned []MissingPartition `json:"unowned,omitempty"`
	// Missing are members of the group that did not answer.
	Missing []MissingMember `json:"missing,omitempty"`
	// Trouble is why Kafka was not asked for the members: they are those that it named at since.
	Trouble *Trouble `json:"trouble,omitempty"`
}

// MissingMember is a member that did not answer.
type MissingMember struct {
	Instance string `json:"instance"`
	Address  string `json:"address,omitempty"`
	Reason   string `json:"reason" schema:"minLength=1"`
}
