package ask

import (
	"context"
	"errors"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// Instance is the member of the group that answers. Its methods may be called by any goroutine, and wait for nothing,
// but for Audit.
type Instance interface {
	Online() bool       // Kafka is connected
	Partitions() int32  // of the event topic; 0: the topics are not checked yet
	Part(id int32) Part // nil: it is not live here
	Owned() []Part      // those that are live here, in order

	Unmatched() []api.UnmatchedEvents // what no rule has counted here

	// Audit writes an entry, and returns when it is durable.
	Audit(ctx context.Context, key string, entry any) error
}

// Part is a partition that the instance owns: an owner.Partition, which describes these methods. View and ViewSome
// delay events: what they call is short.
type Part interface {
	ID() int32
	Live() bool
	Sight() owner.Sight
	View(look func(*shard.Shard, *owner.Rules))
	ViewSome(look func(*shard.Shard, *owner.Rules) (more bool))
	KeysWith(ctx context.Context, key []event.Dim) ([]string, error)
	CarryOut(ctx context.Context, rec *shard.CommandRecord) (owner.CommandResult, error)
}

// Rulebook has the versions of the group's rules. All but Current, Shared and Running read their topic, one request at
// a time.
type Rulebook interface {
	Current() *owner.Rules
	Shared() bool        // there are versions: the rules are those of a file
	Running() *api.Rules // as it was published; nil before one was read

	Version(ctx context.Context, number int64) (api.Rules, error)
	// Versions returns the newest versions below one, at most so many, the newest first; before 0 is the end.
	// more reports whether there are older ones.
	Versions(ctx context.Context, before int64, limit int) (all []api.RuleVersion, more bool, err error)
	// Rollback publishes the text of an older version as the newest one.
	Rollback(ctx context.Context, to api.Rollback) (api.Reloaded, error)
}

// Errors of a Rulebook.
var (
	ErrNotConnected = errors.New("aggregate: not connected to Kafka yet")
	ErrRules        = errors.New("aggregate: the rule file is refused")
	ErrNoVersion    = errors.New("aggregate: the rules topic has no such version")
	ErrRunning      = errors.New("aggregate: the group runs these rules already")
)

// Group tells who else is in the consumer group, as its coordinator has it. Answers may be a second old, so that who
// asks about many keys asks Kafka once. An owner that was replaced meanwhile refuses the question.
type Group interface {
	// Owners returns the owner of each partition that has one.
	Owners() (map[int32]Address, error)
	// Seen returns the group, and waits for Kafka a little; then the group is as it was last, with the reason.
	Seen(ctx context.Context) (Seen, error)
	// Knows reports whether a member has this public key; with now, by what Kafka says now.
	Knows(ctx context.Context, key string, now bool) bool
}

// Address leads to a partition's owner, or has the reason why nothing does.
type Address struct {
	Addr string // HOST:PORT; "": it advertises none
	TLS  bool
	Err  error
}

// Seen is the group at some moment.
type Seen struct {
	Others    []Member
	Owners    map[int32]Address // of each partition that has one
	OwnersErr error
	Trouble   *api.Trouble // why it is the group of an earlier moment
}

// Member is another member.
type Member struct {
	Name string // its instance id
	At   Address
}

// base is shared by all answers.
type base struct {
	instance Instance
	rules    Rulebook
	group    Group
	peers    *peers

	name, advertise string
}

// home returns the partition that owns a key.
func (a *base) home(key []event.Dim) int32 { return partitionOf(key, a.instance.Partitions()) }

// now is the time for explanations. Counting never uses it.
func now() event.Micros { return event.FromTime(time.Now()) }
