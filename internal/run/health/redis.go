package health

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tallygate/tallygate/internal/base/words"
)

// servers has the faults of primaries.
func servers(judge func(*Server) Fault) func(*Observations) []Fault {
	return func(o *Observations) (all []Fault) {
		if !o.Redis.Known(o.Now) {
			return nil
		}
		for i := range o.Redis.Value.Servers {
			if f := judge(&o.Redis.Value.Servers[i]); f.Level != "" {
				all = append(all, f)
			}
		}
		return all
	}
}

func replica(s *Server) (f Fault) {
	if s.Replica() {
		f = Fault{Level: Bad, Text: s.Name + " is a replica: it cannot be written, and enforcers that read it would be behind",
			Advice: "use its primary: --redis " + s.Primary + ", or the Sentinels with --redis-master"}
	}
	return f
}

func loading(s *Server) (f Fault) {
	if s.Loading {
		f = Fault{Level: Warn, Text: s.Name + " is loading its data"}
	}
	return f
}

// NoEviction is the maxmemory-policy by which Redis loses no blocks.
const NoEviction = "noeviction"

func evicts(s *Server) (f Fault) {
	if s.Policy != "" && s.Policy != NoEviction {
		f = Fault{Level: Bad, Text: s.Name + ": maxmemory-policy is " + s.Policy + ": when its memory is full, blocks are lost silently"}
	}
	return f
}

func full(s *Server) (f Fault) {
	switch {
	case s.MaxMemory <= 0 || s.Memory*100 < s.MaxMemory*MemoryWarn:
	case s.Memory >= s.MaxMemory:
		f = Fault{Level: Bad, Text: s.Name + " is full: it refuses new blocks"}
	default:
		f = Fault{Level: Warn, Text: fmt.Sprintf("%s uses %d %% of its memory: when it is full, it refuses new blocks", s.Name,
			s.Memory*100/s.MaxMemory)}
	}
	return f
}

// shards has the faults of the blocklist's shards.
func (o *Observations) shards(judge func(s *Shard, number int, name string) Fault) (all []Fault) {
	if !o.Redis.Known(o.Now) {
		return nil
	}
	for i := range o.Redis.Value.Shards {
		name := "the blocklist"
		if len(o.Redis.Value.Shards) > 1 {
			name = fmt.Sprintf("shard %d of the blocklist", i)
		}
		if f := judge(&o.Redis.Value.Shards[i], i, name); f.Level != "" {
			all = append(all, f)
		}
	}
	return all
}

func unwritten(o *Observations) []Fault {
	return o.shards(func(s *Shard, i int, name string) Fault {
		switch {
		case s.Written:
			return Fault{}
		case o.Kafka.Known(o.Now) && len(o.lacks(i)) > 0:
			return Fault{Level: Bad, Text: name + " was never written, but there are verdicts: no request is blocked"}
		}
		return Fault{Level: Warn, Text: name + " was never written: enforcers are not ready until then"}
	})
}

func shardsDiffer(o *Observations) []Fault {
	told := len(o.Redis.Value.Shards)
	all := o.shards(func(s *Shard, _ int, _ string) Fault {
		if !s.Written || s.Of == 0 || s.Of == told {
			return Fault{}
		}
		return Fault{Level: Bad, Text: fmt.Sprintf("the blocklist has %s, and --shards is %d: "+
			"publishers and enforcers with this number refuse the blocklist", words.Plural(s.Of, "shard"), told),
			Advice: fmt.Sprintf("give all programs --shards %d; or, to have %d, stop them all, "+
				"delete the keys of all %d shards, and start them with --shards %[2]d: the blocklist is then rebuilt", s.Of, told, s.Of)}
	})
	return all[:min(1, len(all))]
}

func heartbeat(o *Observations) []Fault {
	return o.shards(func(s *Shard, _ int, name string) (f Fault) {
		since := o.Redis.Value.Now.Sub(s.Beat)
		switch level := Heartbeat.Level(since); {
		case !s.Written || level == OK:
		case level == Bad:
			f = Fault{Level: Bad, Text: "nobody has written " + name + " for " + span(since) + ": new blocks do not arrive"}
		default:
			f = Fault{Level: Warn, Text: "the last heartbeat of a publisher of " + name + " came " + span(since) + " ago"}
		}
		return f
	})
}

// gap is a partition of the verdict topic of which Redis and Kafka differ.
type gap struct {
	partition      int32
	reached, ended int64
}

func (g gap) String() string {
	return fmt.Sprintf("%d (at %d of %d)", g.partition, g.reached, g.ended)
}

// gaps are the partitions of a shard whose place in Redis differs from their ends.
func (o *Observations) gaps(shard int, ends map[int32]int64, differ func(reached, end int64) bool) (all []gap) {
	r := &o.Redis.Value
	for _, p := range slices.Sorted(maps.Keys(ends)) {
		if int(p)%max(1, len(r.Shards)) == shard && differ(r.reached(p), ends[p]) {
			all = append(all, gap{p, r.reached(p), ends[p]})
		}
	}
	return all
}

func (o *Observations) lacks(shard int) []gap {
	return o.gaps(shard, o.Kafka.Value.Verdicts.Ends, func(reached, end int64) bool { return reached < end })
}

// beyond judges what Kafka does not have. Who does not know the ends from after Redis was read cannot tell.
func beyond(o *Observations) []Fault {
	return o.shards(func(s *Shard, i int, name string) Fault {
		list := o.gaps(i, o.Kafka.Value.Verdicts.Later, func(reached, end int64) bool { return reached > end })
		if !s.Written || len(list) == 0 {
			return Fault{}
		}
		return Fault{Level: Bad, Text: fmt.Sprintf("%s is beyond the end of %s in partition %s: "+
			"the topic was recreated or truncated, or Redis belongs to another cluster", name, o.Kafka.Value.Verdicts.Name, Some(list)),
			Advice: fmt.Sprintf("if so, delete the blocklist's keys, and it is rebuilt: "+
				"DEL {%[1]s:%[2]d}:verdicts {%[1]s:%[2]d}:expiry {%[1]s:%[2]d}:changes", o.Doctor.Prefix, i)}
	})
}

// unpublished judges verdicts that Redis has not. The doctor does not know for how long, and so not whether they are only
// on their way.
func unpublished(o *Observations) []Fault {
	if !o.Kafka.Known(o.Now) || !o.Redis.Known(o.Now) || !o.Redis.Value.written() {
		return nil
	}
	text := words.Plural(int(lacking(o)), "verdict record") + " not in Redis yet"
	stale := o.Redis.Value.staleness()
	switch {
	case o.Doctor != nil && lacking(o) > 0:
		var where []gap
		for i := range o.Redis.Value.Shards {
			where = append(where, o.lacks(i)...)
		}
		return []Fault{{Level: Warn, Text: text + ", of partition " + Some(where),
			Advice: "check again: a few verdicts may be on their way; if it persists, see the publishers' logs"}}
	case o.Doctor == nil && !o.behind.IsZero() && stale >= Behind.Warn:
		return []Fault{{Level: Behind.Level(stale), Text: text + ", for " + span(o.Now.Sub(o.behind))}}
	}
	return nil
}

// lacking returns the number of records of the verdict topic that Redis has not, those of owners included.
func lacking(o *Observations) (n int64) {
	for p, end := range o.Kafka.Value.Verdicts.Ends {
		n += max(0, end-o.Redis.Value.reached(p))
	}
	return n
}

func filling(o *Observations) []Fault {
	if !o.Redis.Known(o.Now) || !o.Redis.Value.written() || o.Redis.Value.staleness() >= 0 {
		return nil
	}
	return []Fault{{Level: Warn, Text: "Redis is being filled for the first time"}}
}

func stale(o *Observations) []Fault {
	behind := o.Redis.Value.staleness()
	if level := Behind.Level(behind); o.Redis.Known(o.Now) && level != OK {
		return []Fault{{Level: level, Text: "what Redis has is " + span(behind) + " old"}}
	}
	return nil
}

// clocks compares the two that are farthest apart. The margins count for them: a slow answer is no wrong clock.
func clocks(o *Observations) []Fault {
	if o.Doctor == nil || len(o.Doctor.Clocks) == 0 {
		return nil
	}
	first, last := Spread(o.Doctor.Clocks)
	apart := last.Ahead - first.Ahead
	f := Fault{Level: Clock.Level(apart - first.Margin - last.Margin),
		Text: fmt.Sprintf("%s is %v ahead of %s: windows and blocks end at the wrong time", last.Name, apart.Round(time.Millisecond), first.Name)}
	if f.Level == OK {
		return nil
	}
	return []Fault{f}
}

// Spread returns the clock that is most behind, and the one that is most ahead.
func Spread(all []Offset) (first, last Offset) {
	byAhead := func(a, b Offset) int { return int(a.Ahead - b.Ahead) }
	return slices.MinFunc(all, byAhead), slices.MaxFunc(all, byAhead)
}

// strictClock judges the clocks by which shards count permits. They never go back, so that one stays ahead for a while
// when Redis' clock was.
func strictClock(o *Observations) []Fault {
	if o.Doctor == nil || o.Doctor.Strict.Ahead <= Clock.Warn {
		return nil
	}
	return []Fault{{Level: Warn, Text: fmt.Sprintf("Redis' clock was wrong: strict limits of %s count by one that is %v ahead. "+
		"It loses a tenth of a second each second; once it is more than a minute ahead, the aggregators set it back",
		o.Doctor.Strict.Name, o.Doctor.Strict.Ahead.Round(time.Millisecond))}}
}
