package world

import (
	"cmp"
	"fmt"
	"time"
)

const (
	beatWarn  = 4 * time.Second // of the publishers into Redis
	beatBad   = 10 * time.Second
	staleWarn = 5 * time.Second // what Redis has is behind
	staleBad  = 30 * time.Second
)

func judgeVerdicts(r *Readings, behind time.Time) Link {
	l := Link{Name: "verdicts", Title: "Verdicts", Read: r.Redis.At, Runbook: "TallygateNothingDurable"}
	if r.Kafka.At.Before(l.Read) {
		l.Read = r.Kafka.At
	}
	stale := r.Redis.Value.Staleness()
	switch {
	case r.NoRedis:
		l.Level, l.Cause = Unknown, "the console has no --redis to compare them with"
	case !r.Kafka.Known(r.Now):
		l.Level, l.Cause = Unknown, "not seen while Kafka cannot be read"
	case r.Kafka.Value.Verdicts.Missing:
		l.Level, l.Cause = Unknown, "there is no topic of verdicts yet"
	case !r.Redis.Known(r.Now):
		l.Level, l.Cause = Unknown, "not seen while Redis cannot be read"
	case r.Redis.Value.Written && stale >= staleWarn && !behind.IsZero():
		l.Level, l.Cause = Warn, fmt.Sprintf("%s not in Redis yet, for %s", count(int(unpublished(r)), "verdict record"), span(r.Now.Sub(behind)))
		if stale >= staleBad {
			l.Level = Bad
		}
		l.Do = "Look at the aggregators' last errors: they write into Redis."
	case r.Redis.Value.Written && stale < 0:
		l.Level, l.Cause = Warn, "Redis is being filled for the first time"
	case stale >= staleWarn:
		l.Level, l.Cause, l.Do = Warn, "what Redis has is "+span(stale)+" old", "Look whether a partition has no owner: its owner publishes."
		if stale >= staleBad {
			l.Level = Bad
		}
	default:
		l.Level, l.Runbook, l.Cause = OK, "", "in Redis "+span(max(0, stale))+" after their events"
	}
	l.Plain = l.Cause
	return l
}

func judgeRedis(r *Readings) Link {
	l := Link{Name: "redis", Title: "Redis", Read: r.Redis.At, Runbook: "TallygateRedisRefuses"}
	if r.NoRedis {
		l.Level, l.Cause, l.Plain = Unknown, "the console has no --redis to look at", "the console looks at no Redis"
		return l
	}
	if !r.Redis.Known(r.Now) {
		unread(&l, &r.Redis, r.Now, "Redis")
		return l
	}
	is := &r.Redis.Value
	who, trouble := redisTrouble(r)
	beat := is.Now.Sub(is.Beat)
	switch {
	case trouble != nil:
		l.Level, l.Cause, l.Plain = Bad, fmt.Sprintf("Redis refuses %s (%s): %s", who, trouble.Reason, short(trouble.Error)), "Redis refuses an aggregator"
		l.Do = "Give the aggregators' user its rights and password again: tallygate doctor --acls prints them."
	case is.Replica:
		l.Level, l.Cause, l.Do = Bad, "it is a replica: nothing can be written", "Name the primary in --redis, or the Sentinels with --redis-master."
	case is.Policy != "" && is.Policy != "noeviction":
		l.Level, l.Cause, l.Do = Bad, "maxmemory-policy is "+is.Policy+": when memory is full, blocks are lost silently", "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf."
	case is.MaxMemory > 0 && is.Memory >= is.MaxMemory:
		l.Level, l.Cause, l.Do = Bad, "its memory is full: it refuses new blocks", "Raise maxmemory, or move other data away."
	case !is.Written:
		l.Level, l.Cause, l.Do = Warn, "the blocklist was never written: enforcers are not ready until then", "Start an aggregator with --redis."
	case beat >= beatBad:
		l.Level, l.Cause, l.Do = Bad, "nobody has written the blocklist for "+span(beat)+": new blocks do not arrive", "Look at the aggregators: they write it."
	case beat >= beatWarn:
		l.Level, l.Cause = Warn, "the last heartbeat of a publisher came "+span(beat)+" ago"
	case is.MaxMemory > 0 && is.Memory*100 >= is.MaxMemory*80:
		l.Level, l.Cause, l.Do = Warn, fmt.Sprintf("%d %% of its memory is used: when it is full, it refuses new blocks", is.Memory*100/is.MaxMemory), "Raise maxmemory."
	default:
		l.Level, l.Runbook, l.Cause = OK, "", "answers in "+span(is.Latency)
		if is.Entries >= 0 {
			l.Cause = count(int(is.Entries), "verdict") + ", " + l.Cause
		}
	}
	l.Plain = cmp.Or(l.Plain, l.Cause)
	return l
}
