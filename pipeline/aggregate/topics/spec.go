package topics

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// spec is the wanted form of one topic.
type spec struct {
	name       string
	partitions int32
	exactly    bool // the partition count must be this; else at least this
	settings   []setting
}

// setting is one of a topic's settings.
type setting struct {
	key   string
	value string // what a new topic gets
	fits  func(have string, t found) bool
	must  bool   // refuse to start if it does not fit; else advise
	why   string // the consequence if it does not fit
}

const (
	minLoopRetention = 24 * time.Hour
	tableSegment     = 32 << 20
	minTableRecord   = 768 << 10 // a state block of 512 KiB, its key, the batch
	maxTableRecord   = 2 << 20
	minLoopRecord    = 512 << 10 // a batch of 256 KiB of forwards, an event of 64 KiB
	maxLoopRecord    = 1 << 20
	maxEventRecord   = 2 << 20 // an array of 1 MiB, its headers
	minEventRecord   = 1<<20 + 64<<10
	minVerdictRecord = 512 << 10 // a batch of 256 KiB of verdicts, and room for one that is large
	maxVerdictRecord = 1 << 20
	minSideRecord    = 128 << 10 // an audit record, or what is left of a dead letter
	minWholeLetter   = 832 << 10 // a dead letter that is not cut for the topic's sake
)

func (c Config) specs(partitions int32, replication int16) []spec {
	n := NamesOf(c.Prefix)
	safe := []setting{
		{"min.insync.replicas", strconv.Itoa(wantInSync(replication)), inSync, true,
			"a broker's crash could lose what it has acknowledged"},
		{"unclean.leader.election.enable", "false", equals("false"), true,
			"a replica that lags could become leader and lose what was acknowledged"},
	}
	stamped := setting{"message.timestamp.type", "LogAppendTime", equals("LogAppendTime"), false,
		"a wrong clock of an aggregator could make brokers delete records early, or forget who is fenced"}
	events := setting{"message.timestamp.type", "LogAppendTime", equals("LogAppendTime"), true,
		"producers could forge the broker's time of their events (or set broker_time: create)"}
	if c.ProducerTime {
		events = setting{key: "message.timestamp.type", value: "CreateTime"}
	}
	return []spec{
		{n.Events, partitions, true, slices.Concat([]setting{events,
			{"cleanup.policy", "delete", lacks("compact"), true, "older events of a uid would vanish before they are counted"},
			{"retention.ms", millis(c.EventRetention), nil, false, ""},
			{"max.message.bytes", strconv.Itoa(maxEventRecord), atLeast(minEventRecord), false, "records with arrays of 1 MiB are refused"},
		}, asAdvice(safe))},
		{n.Loop, partitions, true, slices.Concat([]setting{stamped,
			{"cleanup.policy", "delete", lacks("compact"), true, "forwarded events would vanish before they are counted"},
			{"retention.ms", millis(c.LoopRetention), atLeastOrNone(minLoopRetention), true, "forwarded events that wait for longer are lost"},
			{"max.message.bytes", strconv.Itoa(maxLoopRecord), atLeast(minLoopRecord), true, "forwards would be refused"},
		}, safe)},
		{n.Table, partitions, true, slices.Concat([]setting{stamped,
			{"cleanup.policy", "compact", equals("compact"), true, "states would be deleted by age"},
			{"segment.bytes", strconv.Itoa(tableSegment), atMost(64 << 20), false, "recovery reads several times as much"},
			{"max.message.bytes", strconv.Itoa(maxTableRecord), atLeast(minTableRecord), true, "large states would be refused"},
		}, safe)},
		{n.Verdicts, partitions, true, slices.Concat([]setting{stamped,
			{"cleanup.policy", "compact,delete", has("compact"), true, "verdicts in force would vanish with the older ones"},
			{"retention.ms", millis(c.VerdictRetention), atLeastOrNone(c.VerdictRetention), false, "blocks that last longer vanish"},
			{"segment.bytes", strconv.Itoa(tableSegment), atMost(64 << 20), false, "a blocklist that is built anew reads several times as much"},
			{"max.message.bytes", strconv.Itoa(maxVerdictRecord), atLeast(minVerdictRecord), true, "verdicts would be refused"},
		}, safe)},
		{n.Audit, partitions, false, []setting{stamped,
			{"cleanup.policy", "delete", lacks("compact"), true, "only the latest entry of a key would stay"},
			{"retention.ms", millis(c.AuditRetention), nil, false, ""},
			{"max.message.bytes", strconv.Itoa(maxVerdictRecord), atLeast(minSideRecord), true, "audit records would be refused, and nothing counted any more"},
		}},
		{n.Rules, 1, true, slices.Concat([]setting{
			{"cleanup.policy", "delete", lacks("compact"), false, "older versions of the rules vanish, and nobody can look at them or roll back to them"},
			{"retention.ms", "-1", unlessDeleting(unlimited), true, "the rule set would be deleted by age"},
			{"retention.bytes", "-1", unlessDeleting(unlimited), true, "the rule set would be deleted by size"},
			{"max.message.bytes", strconv.Itoa(maxTableRecord), nil, false, ""},
		}, safe)},
		{n.DeadLetters, partitions, false, []setting{stamped,
			{"cleanup.policy", "delete", lacks("compact"), true, "only the latest record of a key would stay, and one without a key be refused"},
			{"retention.ms", millis(c.DeadLetterRetention), nil, false, ""},
			{"max.message.bytes", strconv.Itoa(maxEventRecord), atLeast(minWholeLetter), false, "dead letters are cut shorter"},
			{"max.message.bytes", strconv.Itoa(maxEventRecord), atLeast(minSideRecord), true, "dead letters would be refused, and nothing counted any more"},
		}},
	}
}

func asAdvice(s []setting) []setting {
	s = slices.Clone(s)
	for i := range s {
		s[i].must = false
	}
	return s
}

func wantInSync(replication int16) int {
	if replication >= 3 {
		return 2
	}
	return 1
}

func inSync(have string, t found) bool { return number(have) >= int64(wantInSync(t.replication)) }

func equals(want string) func(string, found) bool {
	return func(have string, _ found) bool { return have == want }
}

func has(policy string) func(string, found) bool {
	return func(have string, _ found) bool { return slices.Contains(policies(have), policy) }
}

func lacks(policy string) func(string, found) bool {
	return func(have string, _ found) bool { return !slices.Contains(policies(have), policy) }
}

func unlimited(have string, _ found) bool { return number(have) < 0 }

// unlessDeleting checks what only a topic that deletes is subject to.
func unlessDeleting(fits func(string, found) bool) func(string, found) bool {
	return func(have string, t found) bool {
		return !slices.Contains(policies(t.settings["cleanup.policy"]), "delete") || fits(have, t)
	}
}

func atLeast(n int64) func(string, found) bool {
	return func(have string, _ found) bool { return number(have) >= n }
}

func atMost(n int64) func(string, found) bool {
	return func(have string, _ found) bool { return number(have) <= n }
}

// atLeastOrNone accepts a duration of at least d, or no limit.
func atLeastOrNone(d time.Duration) func(string, found) bool {
	return func(have string, _ found) bool { return have == "-1" || number(have) >= d.Milliseconds() }
}

func policies(list string) []string {
	p := strings.Split(list, ",")
	for i := range p {
		p[i] = strings.TrimSpace(p[i])
	}
	return p
}

// number returns 0 if s is not a number.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
