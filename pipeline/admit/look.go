package admit

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/internal/script"
	"github.com/tallygate/tallygate/pipeline/admit/limits"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
)

// Looker reads where keys stand under strict limits, for people. It changes nothing, and asks for no
// permit. Its methods may be called by many goroutines.
type Looker struct{ shards *script.Shards }

// NewLooker returns a Looker. The client must read from primaries; prefix, shards and partitions are
// those that permits are granted with.
func NewLooker(client redis.UniversalClient, prefix string, shards int, partitions int32) *Looker {
	return &Looker{&script.Shards{Client: client, Prefix: prefix, Shards: max(shards, 1), Partitions: partitions}}
}

// Standing is a key's position under one strict limit.
type Standing struct {
	Level event.Decimal // what is counted
	Held  event.Decimal // what is under way
	Used  event.Decimal // both: of a bucket it may be less than their sum

	Limit     event.Decimal // of the tier that the key had last, else the lowest; may be rules.Unlimited
	Remaining event.Decimal

	Permits int          // that are under way
	Oldest  event.Micros // when the first of them was granted; NoTime without any
	LostAt  event.Micros // when the first of them is lost, unless its action tells how it ended; NoTime without any

	ResetsAt event.Micros // when nothing counts any more, unless more is counted; NoTime when nobody knows, or nothing does
}

// Seen is the result of a look at a key.
type Seen struct {
	Now    event.Micros // by Redis' clock
	Ahead  event.Micros // how far the clock that the shard counts by is ahead of Redis'
	Grants bool         // Redis may grant permits for the key's partition
	Limits []Standing   // of those that were asked for
}

// Look reads where a key of a partition stands under strict limits that count by its dimensions.
func (l *Looker) Look(ctx context.Context, partition int32, key string, strict []*rules.Limit) (Seen, error) {
	memory, process, err := l.shards.Inspect(ctx, partition, key)
	if err != nil {
		return Seen{}, err
	}
	q := protocol.Ask{Partition: partition, Key: key}
	for _, of := range strict {
		one := limits.Of(of)
		want := rules.Want{Amount: event.One, AnyTier: true, Threshold: one.Lowest()}
		if own, has := of.Override([]byte(key), process.Time); has {
			want.Threshold, want.AnyTier = own, false
		}
		q.Wants = append(q.Wants, one.Want(&want, process.Time))
	}
	found := memory.Look(process, &q)
	seen := Seen{Now: found.Now, Ahead: found.Clock - process.Time, Grants: found.Grants}
	for i := range found.Limits {
		seen.Limits = append(seen.Limits, standingOf(&found.Limits[i]))
	}
	return seen, nil
}

func standingOf(l *protocol.Look) Standing {
	s := Standing{
		Level: l.Level, Held: l.Held, Used: l.Used, Limit: l.Threshold, Remaining: max(0, l.Threshold-l.Used),
		Permits: l.Permits, Oldest: known(l.Oldest), LostAt: known(l.Lost), ResetsAt: known(l.ResetAt),
	}
	if s.Limit == limits.Unlimited {
		s.Limit, s.Remaining = rules.Unlimited, 0
	}
	return s
}

func known(at event.Micros) event.Micros {
	if at == 0 {
		return event.NoTime
	}
	return at
}
