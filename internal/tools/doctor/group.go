package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// checkGroup checks which aggregators run, and how far they are behind. Checkpoints commit once a
// second, so there is always some lag: what matters is how long an event waits.
func (e *kafkaSide) checkGroup(ctx context.Context) outcome {
	var g *sarama.GroupDescription
	err := e.whileLoading(ctx, func() (err error) {
		g, err = e.describeGroup(e.names.Group)
		return err
	})
	switch {
	case errors.Is(err, sarama.ErrGroupIDNotFound):
		g = &sarama.GroupDescription{GroupId: e.names.Group}
	case err != nil:
		return found(fail("group", "see acls", "the group %s cannot be read: %v", e.names.Group, err))
	}
	if !e.exists(e.names.Events) {
		return found(skip("group", "there is no %s yet", e.names.Events))
	}
	lag, err := e.lag()
	if err != nil {
		return found(fail("group", "", "the lag of the group cannot be read: %v", err))
	}
	if g.State != "Stable" && len(g.Members) > 0 {
		return found(warn("group", "check again in a few seconds", "the group %s with %s is in state %s", g.GroupId, words.Plural(len(g.Members), "member"), g.State))
	}
	group, err := clusterOf(e.names.Events, g, lag)
	if err != nil {
		return found(fail("group", "make sure that no other program uses this group", "%v", err))
	}
	o := e.cfg.look()
	o.Doctor.Started, o.Doctor.Lag = lag.started, lag.String()
	o.Cluster.Took(*group, nil, o.Now)
	if results := judged("group", o); len(results) > 0 {
		return found(worst(results)...)
	}
	return found(ok("group", "%s with all %d partitions, %s", words.Plural(len(g.Members), "member"), lag.partitions, lag))
}

// clusterOf makes of Kafka's answer about the group the one that an aggregator would give: the doctor asks none.
func clusterOf(events string, g *sarama.GroupDescription, lag *lag) (*health.Cluster, error) {
	c := &health.Cluster{}
	var told []topics.Member
	owned := map[int32]bool{}
	for _, m := range g.Members {
		var is topics.Member
		if meta, err := m.GetMemberMetadata(); err == nil && meta != nil {
			is = topics.ParseMember(meta.UserData)
		}
		a, err := m.GetMemberAssignment()
		if err != nil || a == nil {
			return nil, fmt.Errorf("the assignment of member %s at %s cannot be read: %w", m.ClientId, m.ClientHost, err)
		}
		member := api.Status{Instance: cmp.Or(is.Advertise, m.ClientHost), Ready: true, Aggregator: &api.AggregatorStatus{Rules: api.RulesStatus{Name: is.Rules, FileOK: true}}}
		for _, p := range a.Topics[events] {
			owned[p] = true
			b := lag.behind[p]
			member.Aggregator.Partitions = append(member.Aggregator.Partitions, api.PartitionStatus{Partition: p, State: "open", Lag: b.events, LagSeconds: b.waited.Seconds()})
		}
		c.Members, told = append(c.Members, member), append(told, is)
	}
	differences(c.Members, told)
	for p := range int32(lag.partitions) {
		if !owned[p] && len(g.Members) > 0 {
			c.Unowned = append(c.Unowned, api.MissingPartition{Partition: p, Reason: "none of " + words.Plural(len(g.Members), "member") + " has it"})
		}
	}
	return c, nil
}

// lag counts the group's events that wait.
type lag struct {
	partitions int
	started    bool // something was ever committed
	behind     map[int32]behind
	total      int64
}

// behind is a partition with uncounted events.
type behind struct {
	events int64
	waited time.Duration // a lower bound: 0, or what is too much
}

func (l *lag) String() string {
	if l.total == 0 {
		return "no lag"
	}
	worst := int32(-1)
	for _, p := range slices.Sorted(maps.Keys(l.behind)) {
		if worst < 0 || l.behind[p].events > l.behind[worst].events {
			worst = p
		}
	}
	return fmt.Sprintf("lag %d events, most in partition %d: %d", l.total, worst, l.behind[worst].events)
}

// lag compares the committed offsets with the ends of the partitions, and with the offsets of some
// time ago.
func (e *kafkaSide) lag() (*lag, error) {
	topic := e.names.Events
	n := e.layout.Topics[topic].Partitions
	partitions := make([]int32, n)
	for p := range partitions {
		partitions[p] = int32(p)
	}
	committed, err := e.admin.ListConsumerGroupOffsets(e.names.Group, map[string][]int32{topic: partitions})
	if errors.Is(err, sarama.ErrGroupIDNotFound) {
		committed, err = &sarama.OffsetFetchResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var at [3]map[int32]int64
	for i, when := range []int64{sarama.OffsetOldest, sarama.OffsetNewest, now.Add(-health.Late.Bad).UnixMilli()} {
		if at[i], err = e.offsets(topic, n, when); err != nil {
			return nil, err
		}
	}
	l := &lag{partitions: int(n), behind: map[int32]behind{}}
	for p := range n {
		next := at[0][p]
		if b := committed.GetBlock(topic, p); b != nil && b.Offset >= 0 {
			l.started, next = true, max(next, b.Offset)
		}
		end := at[1][p]
		if next >= end {
			continue
		}
		b := behind{events: end - next}
		// No offset: all events are older. What checkpoints commit is behind what is counted, so that less than the
		// bound says nothing.
		if first := at[2][p]; first < 0 || next < first {
			b.waited = health.Late.Bad
		}
		l.behind[p], l.total = b, l.total+b.events
	}
	return l, nil
}

// offsets returns, by partition, the offset at a time in Unix milliseconds, or at sarama's
// OffsetOldest or OffsetNewest.
func (e *kafkaSide) offsets(topic string, n int32, when int64) (map[int32]int64, error) {
	ask := map[int32]int64{}
	for p := range n {
		ask[p] = when
	}
	answer, err := e.admin.ListOffsets(map[string]map[int32]int64{topic: ask}, nil)
	if err != nil {
		return nil, err
	}
	out := map[int32]int64{}
	for p := range n {
		r := answer[topic][p]
		if r == nil {
			return nil, sarama.ErrIncompleteResponse
		}
		if r.Err != nil && !errors.Is(r.Err, sarama.ErrNoError) {
			return nil, fmt.Errorf("%s/%d: %w", topic, p, r.Err)
		}
		out[p] = r.Offset
	}
	return out, nil
}
