package world

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/status"
)

const (
	lagWarn = 5 * time.Second
	lagBad  = time.Minute
)

// judgeAggregators looks for the worst first: partitions that nobody counts, then members, then the lag.
func judgeAggregators(r *Readings, gone []string) Link {
	l := Link{Name: "aggregators", Title: "Aggregators", Read: r.Cluster.At, Runbook: "TallygateNoAggregator"}
	if !r.Cluster.Known(r.Now) {
		noCluster(&l, r)
		return l
	}
	members, missing := r.Cluster.Value.Members, r.Cluster.Value.Missing
	lag, worst := worstLag(r)
	failed, recovering := inState(members, "failed"), inState(members, "recovering")
	switch {
	case len(members) == 0:
		l.Level, l.Cause, l.Do = Bad, errNoMember.Error(), "Start one."
	case len(r.Cluster.Value.Unowned) > 0:
		l.Level, l.Cause = Bad, "nobody counts "+unowned(r.Cluster.Value.Unowned)+missed(missing)
		l.Do = "Start the aggregator that is away. Others take its partitions over after --session-timeout."
	case differs(members) != "":
		l.Level, l.Cause, l.Runbook = Bad, differs(members), "TallygateMembersDiffer"
		l.Do = "Start all members of the group with the same --redis, --shards and --broker-time."
	case len(failed) > 0:
		l.Level, l.Cause, l.Runbook = Bad, partitions(failed)+" cannot be counted; each attempt is a new takeover", "TallygatePartitionFails"
		l.Do = "Look at the members' last errors on the cluster page."
	case len(missing) > 0:
		l.Level, l.Cause, l.Runbook = Warn, strings.TrimPrefix(missed(missing), "; "), "TallygateProgramDown"
		l.Do = "Start it again, or wait until others have its partitions."
	case len(recovering) > 0:
		l.Level, l.Cause = Warn, partitions(recovering)+" is being taken over: its keys are read before it counts on"
	case len(gone) > 0:
		l.Level, l.Cause, l.Runbook = Warn, strings.Join(gone, ", ")+" has left the group, and nobody came instead", "TallygateProgramDown"
		l.Do = "Start it again, if that was not intended. The others count its partitions."
	case lag >= lagWarn:
		l.Level, l.Cause, l.Runbook = Warn, fmt.Sprintf("counting is %s behind in partition %d", span(lag), worst), "TallygateCountingStopped"
		if lag >= lagBad {
			l.Level = Bad
		}
		l.Do = "Look whether events come faster than they are counted, and at the members' last errors."
	default:
		l.Level, l.Runbook, l.Cause = OK, "", count(len(members), "member")+", every partition is counted"
		if m := notReady(members); m != nil {
			l.Level, l.Cause, l.Do = Warn, m.Instance+" is not ready: "+short(m.Why), "Look at its last errors on the cluster page."
		}
	}
	return l
}

// noCluster judges when no aggregator says how the group is.
func noCluster(l *Link, r *Readings) {
	unread(l, &r.Cluster, r.Now, "an aggregator")
	if r.Cluster.Err == nil {
		return
	}
	switch s := refusedWith(r.Cluster.Err); {
	case s == http.StatusNotFound:
		l.Level, l.Cause, l.Do = Unknown, "the aggregators are of a version without /v1/cluster", "Update them."
	case s == http.StatusUnauthorized || s == http.StatusForbidden:
		l.Level, l.Plain = Unknown, "the aggregators refuse the console's token"
		l.Cause = l.Plain + ": " + short(r.Cluster.Err.Error())
		l.Do = "Give the console a token with the role viewer: --token-file."
	default:
		l.Level, l.Plain = Bad, "no aggregator answers"
		l.Cause = l.Plain + ": " + short(r.Cluster.Err.Error())
		l.Do = "Start them. If they run, check --aggregator of the console, and the network to them."
	}
}

// differs tells of the first member that differs from another one in what must be the same for all. Of two, the one
// without Redis is told.
func differs(members []status.Status) (text string) {
	for _, m := range members {
		if m.Aggregator == nil {
			continue
		}
		for _, d := range m.Aggregator.Differs {
			if now := d.Text(m.Instance); text == "" || d.There == status.RedisNone {
				text = now
			}
		}
	}
	return text
}

func notReady(members []status.Status) *status.Status {
	for i := range members {
		if !members[i].Ready {
			return &members[i]
		}
	}
	return nil
}

// inState are the partitions in a state, of all members.
func inState(members []status.Status, state string) (all []int32) {
	for _, m := range members {
		if m.Aggregator == nil {
			continue
		}
		for _, p := range m.Aggregator.Partitions {
			if p.State == state {
				all = append(all, p.Partition)
			}
		}
	}
	slices.Sort(all)
	return all
}

// worstLag is the greatest lag of a partition, in time.
func worstLag(r *Readings) (lag time.Duration, partition int32) {
	for _, m := range r.Cluster.Value.Members {
		if m.Aggregator == nil {
			continue
		}
		for _, p := range m.Aggregator.Partitions {
			if d := seconds(p.LagSeconds); d > lag {
				lag, partition = d, p.Partition
			}
		}
	}
	return lag, partition
}

func unowned(all []status.Unowned) string {
	list := make([]int32, len(all))
	reasons := []string{}
	for i, u := range all {
		list[i] = u.Partition
		if !slices.Contains(reasons, u.Reason) {
			reasons = append(reasons, u.Reason)
		}
	}
	return partitions(list) + " (" + short(strings.Join(reasons, "; ")) + ")"
}

func missed(all []status.Missing) string {
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "; %s does not answer: %s", m.Instance, short(m.Reason))
	}
	return b.String()
}
