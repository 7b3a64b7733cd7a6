package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

const (
	lateWarn = 30 * time.Second
	lateFail = 5 * time.Minute
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
	results := e.judgeMembers(g, lag)
	if r, late := lag.judge(); late {
		results = append(results, r)
	}
	if len(results) == 0 {
		results = []Result{ok("group", "%s with all %d partitions, %s", plural(len(g.Members), "member"), lag.partitions, lag)}
	}
	return found(worst(results)...)
}

func (e *kafkaSide) judgeMembers(g *sarama.GroupDescription, lag *lag) []Result {
	const start = "start an aggregator"
	switch {
	case len(g.Members) == 0 && lag.started:
		return []Result{fail("group", start, "no aggregator runs in the group %s: nothing is counted (%s)", g.GroupId, lag)}
	case len(g.Members) == 0:
		return []Result{warn("group", start, "no aggregator has run in the group %s yet (%s)", g.GroupId, lag)}
	case g.State != "Stable":
		return []Result{warn("group", "check again in a few seconds", "the group %s with %s is in state %s", g.GroupId, plural(len(g.Members), "member"), g.State)}
	}
	assigned := map[int32]bool{}
	ruleSets := map[string][]string{} // the members, by their sets' hashes
	var told settingsTold
	for _, m := range g.Members {
		if meta, err := m.GetMemberMetadata(); err == nil && meta != nil {
			is := topics.ParseMember(meta.UserData)
			ruleSets[is.Rules] = append(ruleSets[is.Rules], cmp.Or(is.Advertise, m.ClientHost))
			told.add(&is, cmp.Or(is.Advertise, m.ClientHost))
		}
		a, err := m.GetMemberAssignment()
		if err != nil || a == nil {
			return []Result{fail("group", "make sure that no other program uses this group", "the assignment of member %s at %s cannot be read: %v", m.ClientId, m.ClientHost, err)}
		}
		for _, p := range a.Topics[e.names.Events] {
			assigned[p] = true
		}
	}
	var orphans []int32
	for p := range int32(lag.partitions) {
		if !assigned[p] {
			orphans = append(orphans, p)
		}
	}
	if len(orphans) > 0 {
		return []Result{fail("group", "if another program uses this group, stop it; then restart the aggregators",
			"none of %s owns partition %s of %s", plural(len(g.Members), "member"), some(orphans), e.names.Events)}
	}
	return append(told.judge(), judgeRules(ruleSets)...)
}

// judgeRules warns if members count by different rules.
func judgeRules(ruleSets map[string][]string) []Result {
	if len(ruleSets) < 2 {
		return nil
	}
	var sets []string
	for hash, members := range ruleSets {
		sets = append(sets, fmt.Sprintf("%.8s: %s", cmp.Or(hash, "unknown"), strings.Join(members, ", ")))
	}
	slices.Sort(sets)
	return []Result{warn("group", "give all aggregators the same rule file",
		"members count by different rules (%s): when a partition moves between them, it loses the counts of limits that its new owner does not have", strings.Join(sets, "; "))}
}

// lag is how far the group is behind.
type lag struct {
	partitions int
	started    bool // something was ever committed
	behind     []behind
	total      int64
}

// behind is a partition with uncounted events.
type behind struct {
	partition int32
	events    int64
	waited    time.Duration // a lower bound: 0, 30 s or 5 min
}

func (b behind) String() string { return fmt.Sprintf("%d (%d events)", b.partition, b.events) }

func (l *lag) String() string {
	if l.total == 0 {
		return "no lag"
	}
	worst := slices.MaxFunc(l.behind, func(a, b behind) int { return int(a.events - b.events) })
	return fmt.Sprintf("lag %d events, most in partition %d: %d", l.total, worst.partition, worst.events)
}

func (l *lag) judge() (Result, bool) {
	var late []behind
	waited := time.Duration(0)
	for _, b := range l.behind {
		if b.waited > 0 {
			late, waited = append(late, b), max(waited, b.waited)
		}
	}
	if len(late) == 0 {
		return Result{}, false
	}
	r := warn("group", "start more aggregators, at most one per partition, or find what delays them (tallygate_checkpoint_duration_seconds, their logs)",
		"events have waited for more than %v in partition %s", waited, some(late))
	if waited >= lateFail {
		r.Status = Fail
	}
	return r, true
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
	var at [4]map[int32]int64
	for i, when := range []int64{sarama.OffsetOldest, sarama.OffsetNewest, now.Add(-lateWarn).UnixMilli(), now.Add(-lateFail).UnixMilli()} {
		if at[i], err = e.offsets(topic, n, when); err != nil {
			return nil, err
		}
	}
	l := &lag{partitions: int(n)}
	for p := range n {
		next := at[0][p]
		if b := committed.GetBlock(topic, p); b != nil && b.Offset >= 0 {
			l.started, next = true, max(next, b.Offset)
		}
		end := at[1][p]
		if next >= end {
			continue
		}
		b := behind{partition: p, events: end - next}
		for i, d := range []time.Duration{lateWarn, lateFail} {
			// No offset: all events are older.
			if first := at[2+i][p]; first < 0 || next < first {
				b.waited = d
			}
		}
		l.behind, l.total = append(l.behind, b), l.total+b.events
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
