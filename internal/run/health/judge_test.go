package health

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// well is an installation in which everything works.
func well() *Observations {
	r := &Observations{Now: noon, Began: noon.Add(-time.Hour)}
	ends := map[int32]int64{0: 10, 1: 20}
	r.Kafka.Took(Kafka{Brokers: 3, Moved: noon.Add(-time.Second), Events: Topic{Name: "tallygate.events", Partitions: 2, Ends: ends},
		Verdicts: Topic{Name: "tallygate.verdicts", Partitions: 2, Ends: ends}}, nil, noon)
	member := func(name string, partition int32) api.Status {
		return api.Status{Instance: name, Now: noon, Ready: true, Aggregator: &api.AggregatorStatus{Of: 2, Rules: api.RulesStatus{Version: 7, FileOK: true},
			Partitions: []api.PartitionStatus{{Partition: partition, State: "open"}}}}
	}
	r.Cluster.Took(Cluster{Members: []api.Status{member("a", 0), member("b", 1)}}, nil, noon)
	r.Redis.Took(Redis{Now: noon, Servers: []Server{{Name: "Redis", Policy: NoEviction}}, Shards: []Shard{{Written: true, Beat: noon, Applied: noon, Entries: 3, Reached: ends}}}, nil, noon)
	r.Enforcers.Took([]presence.Beat{
		{ID: "1", Name: "pay", At: noon, Seen: noon, Enabled: true, Entries: 3},
		{ID: "2", Name: "search", At: noon, Seen: noon, Enabled: true, Entries: 3},
	}, nil, noon)
	return r
}

// judged are the levels that are not ok, of links and notices, with the words that a reader must see.
type judged map[string]struct {
	level Level
	words string
}

func TestJudge(t *testing.T) {
	down := errors.New("dial tcp 10.0.0.1:9092: connect: connection refused")
	for about, c := range map[string]struct {
		spoil func(*Observations)
		want  judged
	}{
		"everything works": {func(*Observations) {}, judged{}},
		"no broker answers": {func(r *Observations) { r.Kafka.Took(Kafka{}, down, noon) }, judged{
			"producers": {Unknown, "not seen"}, "events": {Bad, "Kafka does not answer: dial tcp"}, "verdicts": {Unknown, "not seen"}}},
		"Kafka hangs": {func(r *Observations) { r.Kafka.At = noon.Add(-time.Minute) }, judged{
			"producers": {Unknown, "not seen"}, "events": {Unknown, "last read 1 min 0 s ago"}, "verdicts": {Unknown, "not seen"}}},
		"Kafka refuses the console": {func(r *Observations) { r.Kafka.Took(Kafka{}, errors.New("[29] Topic Authorization Failed"), noon) }, judged{
			"producers": {Unknown, "not seen"}, "events": {Warn, "Kafka refuses the console"}, "verdicts": {Unknown, "not seen"}}},
		"Kafka refuses an aggregator": {func(r *Observations) {
			r.Cluster.Value.Members[1].Aggregator.Kafka = &api.Trouble{Reason: "auth", Error: "not authorized"}
		}, judged{"events": {Bad, "Kafka refuses the aggregator b (auth): not authorized"}}},
		"a partition without a leader": {func(r *Observations) { r.Kafka.Value.Events.Leaderless = []int32{1} }, judged{"events": {Bad, "no broker leads partition 1"}}},
		"a replica out of sync":        {func(r *Observations) { r.Kafka.Value.Events.Thin = []int32{1} }, judged{"events": {Warn, "out of sync"}}},
		"no topic": {func(r *Observations) {
			r.Kafka.Value.Events.Missing, r.Cluster.Value.Members[0].Aggregator, r.Cluster.Value.Members[1].Aggregator = true, nil, nil
		}, judged{
			"producers": {Unknown, "not seen"}, "events": {Bad, "does not exist"}}},
		"a topic that the console may not see": {func(r *Observations) { r.Kafka.Value.Events.Missing = true }, judged{"producers": {Unknown, "not seen"}, "events": {Warn, "does not show the topic"}}},
		"nobody sends":                         {func(r *Observations) { r.Kafka.Value.Moved = noon.Add(-3 * time.Minute) }, judged{"producers": {Unknown, "no event for 3 min"}}},
		"no aggregator answers":                {func(r *Observations) { r.Cluster.Took(Cluster{}, down, noon) }, judged{"aggregators": {Bad, "no aggregator answers"}}},
		"none was ever read":                   {func(r *Observations) { r.Cluster = Reading[Cluster]{} }, judged{"aggregators": {Unknown, "has not answered yet"}}},
		"an aggregator of an older version": {func(r *Observations) {
			r.Cluster.Took(Cluster{}, &api.Refusal{Status: 404, Detail: "nothing"}, noon)
		}, judged{
			"aggregators": {Unknown, "without /v1/cluster"}}},
		"the console's token is wrong": {func(r *Observations) { r.Cluster.Took(Cluster{}, &api.Refusal{Status: 401, Detail: "no"}, noon) }, judged{
			"aggregators": {Unknown, "refuse the console's token"}}},
		"one of two does not answer": {func(r *Observations) {
			r.Cluster.Value.Members = r.Cluster.Value.Members[:1]
			r.Cluster.Value.Missing = []api.MissingMember{{Instance: "b", Reason: "connection refused"}}
		}, judged{"aggregators": {Warn, "b does not answer: connection refused"}}},
		"and nobody has its partition": {func(r *Observations) {
			r.Cluster.Value.Members = r.Cluster.Value.Members[:1]
			r.Cluster.Value.Missing = []api.MissingMember{{Instance: "b", Reason: "connection refused"}}
			r.Cluster.Value.Unowned = []api.MissingPartition{{Partition: 1, Reason: "b does not answer"}}
		}, judged{"aggregators": {Bad, "nobody counts partition 1"}}},
		"a member has no Redis": {func(r *Observations) {
			r.Cluster.Value.Members[0].Aggregator.Differs = []api.Difference{{Instance: "b", What: "redis", Here: api.RedisThis, There: api.RedisNone}}
			r.Cluster.Value.Members[1].Aggregator.Differs = []api.Difference{{Instance: "a", What: "redis", Here: api.RedisNone, There: api.RedisThis}}
		}, judged{"aggregators": {Bad, "b has no Redis, and a has one: the verdicts of the first one's partitions reach no enforcer"}}},
		"a member has another Redis": {func(r *Observations) {
			r.Cluster.Value.Members[0].Aggregator.Differs = []api.Difference{{Instance: "b", What: "redis", Here: api.RedisThis, There: api.RedisAnother}}
		}, judged{"aggregators": {Bad, "b is not seen in the Redis of a"}}},
		"a partition fails": {func(r *Observations) { r.Cluster.Value.Members[0].Aggregator.Partitions[0].State = "failed" }, judged{
			"aggregators": {Bad, "partition 0 cannot be counted"}}},
		"a takeover": {func(r *Observations) { r.Cluster.Value.Members[0].Aggregator.Partitions[0].State = "recovering" }, judged{
			"aggregators": {Warn, "being taken over"}}},
		"counting is behind":   {func(r *Observations) { r.Cluster.Value.Members[0].Aggregator.Partitions[0].LagSeconds = 8 }, judged{"aggregators": {Warn, "8 s behind in partition 0"}}},
		"counting has stopped": {func(r *Observations) { r.Cluster.Value.Members[0].Aggregator.Partitions[0].LagSeconds = 80 }, judged{"aggregators": {Bad, "behind"}}},
		"a member is not ready": {func(r *Observations) {
			r.Cluster.Value.Members[0].Ready, r.Cluster.Value.Members[0].Why = false, "no file"
		}, judged{
			"aggregators": {Warn, "a is not ready: no file"}}},
		"a rule file is rejected": {func(r *Observations) {
			r.Cluster.Value.Members[0].Aggregator.Rules.FileOK, r.Cluster.Value.Members[0].Aggregator.Rules.FileError = false, "rules.yaml:3:1: unknown field"
		}, judged{"rules-rejected:a": {Bad, "The rule file of a is rejected, and version 7 applies on: rules.yaml:3:1"}}},
		"rules differ": {func(r *Observations) { r.Cluster.Value.Members[0].Aggregator.Rules.Version = 8 }, judged{"rules-differ": {Warn, "(version 7: b; version 8: a)"}}},
		"a fuse":       {func(r *Observations) { r.Cluster.Value.Members[0].Aggregator.Rules.Blown = []string{"daily"} }, judged{"fuse": {Bad, "daily"}}},
		"Redis is away": {func(r *Observations) { r.Redis.Took(Redis{}, down, noon); r.Enforcers.Took(nil, down, noon) }, judged{
			"verdicts": {Unknown, "not seen"}, "redis": {Bad, "does not answer"}, "enforcer:1": {Unknown, "last seen"}, "enforcer:2": {Unknown, "last seen"}}},
		"Redis refuses the console": {func(r *Observations) { r.Redis.Took(Redis{}, errors.New("NOPERM User x has no permissions"), noon) }, judged{
			"verdicts": {Unknown, "not seen"}, "redis": {Warn, "refuses the console: NOPERM"}}},
		"Redis refuses an aggregator": {func(r *Observations) {
			r.Cluster.Value.Members[0].Aggregator.Redis = &api.Trouble{Reason: "auth", Error: "NOPERM"}
		}, judged{"redis": {Bad, "Redis refuses the aggregator a (auth): NOPERM"}}},
		"Redis evicts":   {func(r *Observations) { r.Redis.Value.Servers[0].Policy = "allkeys-lru" }, judged{"redis": {Bad, "blocks are lost silently"}}},
		"Redis fills up": {func(r *Observations) { r.Redis.Value.Servers[0].Memory, r.Redis.Value.Servers[0].MaxMemory = 85, 100 }, judged{"redis": {Warn, "85 %"}}},
		"Redis is full":  {func(r *Observations) { r.Redis.Value.Servers[0].Memory, r.Redis.Value.Servers[0].MaxMemory = 100, 100 }, judged{"redis": {Bad, "full"}}},
		"a replica":      {func(r *Observations) { r.Redis.Value.Servers[0].Role = "slave" }, judged{"redis": {Bad, "replica"}}},
		"nobody publishes": {func(r *Observations) {
			r.Redis.Value.Shards[0].Beat, r.Redis.Value.Shards[0].Applied = noon.Add(-time.Minute), noon.Add(-time.Minute)
		}, judged{"verdicts": {Bad, "old"}, "redis": {Bad, "nobody has written"}}},
		"no enforcer":            {func(r *Observations) { r.Enforcers.Value = nil }, judged{"enforcers": {Unknown, "no enforcer announces itself"}}},
		"an enforcer was killed": {func(r *Observations) { r.Enforcers.Value[0].Age = 9 * time.Second }, judged{"enforcer:1": {Bad, "not heard of for 9 s"}}},
		"an enforcer is late":    {func(r *Observations) { r.Enforcers.Value[0].Age = 4 * time.Second }, judged{"enforcer:1": {Unknown, "not heard of for 4 s"}}},
		"an enforcer is stale":   {func(r *Observations) { r.Enforcers.Value[0].Stale, r.Enforcers.Value[0].Staleness = true, 40 }, judged{"enforcer:1": {Bad, "40 s old"}}},
		"no blocklist yet":       {func(r *Observations) { r.Enforcers.Value[0].Staleness = -1 }, judged{"enforcer:1": {Bad, "no blocklist yet"}}},
		"a feed fails":           {func(r *Observations) { r.Enforcers.Value[0].Error = "NOPERM" }, judged{"enforcer:1": {Bad, "NOPERM"}}},
		"a slow feed":            {func(r *Observations) { r.Enforcers.Value[0].Staleness = 7 }, judged{"enforcer:1": {Warn, "7 s behind"}}},
		"a clock is fast": {func(r *Observations) { r.Enforcers.Value[0].At = noon.Add(time.Minute) }, judged{
			"enforcer:1": {Warn, "its clock is 1 min 0 s fast"}, "clock-skew": {Warn, "pay (its clock is 1 min 0 s fast)"}}},
		"a kill switch": {func(r *Observations) { r.Enforcers.Value[1].Enabled, r.Enforcers.Value[1].OffCause = false, "file" }, judged{
			"enforcer:2": {Bad, "kill switch (file)"}, "kill-switch": {Bad, "search (file) allow everything"}}},
		"an aggregator's clock":   {func(r *Observations) { r.Cluster.Value.Members[0].Now = noon.Add(-time.Minute) }, judged{"member-clock:a": {Warn, "differs from the console's by 1 min"}}},
		"a certificate ends":      {func(r *Observations) { certificate(r, noon.Add(3*24*time.Hour)) }, judged{"certificate:a:tls-cert": {Warn, "--tls-cert of a ends in 3 days"}}},
		"a certificate has ended": {func(r *Observations) { certificate(r, noon.Add(-time.Hour)) }, judged{"certificate:a:tls-cert": {Bad, "has ended"}}},
		"an exemption ends": {func(r *Observations) {
			r.Exemptions.Took(Exemptions{All: 4, Ending: 1, Next: noon.Add(10 * time.Minute)}, nil, noon)
		}, judged{
			"exemptions": {Warn, "1 exemption ends within the hour, the next in 10 min"}}},
	} {
		t.Run(about, func(t *testing.T) {
			r := well()
			c.spoil(r)
			chain, _ := Judge(Memory{}, r)
			checkJudged(t, &chain, c.want)
		})
	}
}

func certificate(r *Observations, ends time.Time) {
	r.Cluster.Value.Members[0].Metrics = map[string][]api.Sample{"tallygate_certificate_expiry_timestamp_seconds": {
		{Labels: map[string]string{"option": "tls-cert"}, Value: float64(ends.Unix())}}}
}

func checkJudged(t *testing.T, chain *Chain, want judged) {
	t.Helper()
	seen := map[string]bool{}
	check := func(name string, level Level, words string) {
		w, expected := want[name]
		seen[name] = true
		if level == OK && !expected {
			return
		}
		if level != w.level || !strings.Contains(words, w.words) || w.words == "" && expected {
			t.Errorf("%s is %s: %q; want %s: %q", name, level, words, w.level, w.words)
		}
	}
	for _, l := range chain.Links {
		check(l.Name, l.Level, l.Cause)
		if l.Level == Bad && (l.Do == "" || l.Runbook == "") {
			t.Errorf("%s is broken, and nobody says what to do: %q, %q", l.Name, l.Do, l.Runbook)
		}
	}
	for _, n := range chain.Notices {
		check(n.Name, n.Level, n.Text)
		if n.Do == "" {
			t.Errorf("%s: nobody says what to do", n.Name)
		}
	}
	for name := range want {
		if !seen[name] {
			t.Errorf("%s is not judged", name)
		}
	}
}

// Whatever was not read is not green: each reading alone, missing or old.
func TestNothingUnknownIsGreen(t *testing.T) {
	chain, _ := Judge(Memory{}, &Observations{Now: noon, Began: noon})
	for _, l := range chain.Links {
		if l.Level != Unknown {
			t.Errorf("%s is %s before anything was read", l.Name, l.Level)
		}
	}
	r := well()
	r.Now = noon.Add(Patience + time.Second)
	chain, _ = Judge(Memory{}, r)
	for _, l := range chain.Links {
		if l.Level == OK {
			t.Errorf("%s is ok, by readings that are old", l.Name)
		}
	}
	if w := (&Chain{}).Worst(); w != Unknown {
		t.Errorf("a chain without links is %s", w)
	}
}

// A link keeps its Since while its level is the same, whatever its words.
func TestSince(t *testing.T) {
	r := well()
	_, memory := Judge(Memory{}, r)
	at := func(seconds int, lag float64) time.Time {
		r := well()
		shift(r, time.Duration(seconds)*time.Second)
		r.Cluster.Value.Members[0].Aggregator.Partitions[0].LagSeconds = lag
		var chain Chain
		chain, memory = Judge(memory, r)
		return chain.Links[2].Since
	}
	for i, step := range []struct {
		seconds int
		lag     float64
		since   int
	}{{10, 0, 0}, {20, 6, 20}, {30, 9, 20}, {40, 70, 40}, {50, 0, 50}} {
		if got := at(step.seconds, step.lag); !got.Equal(noon.Add(time.Duration(step.since) * time.Second)) {
			t.Errorf("step %d: since %v", i, got.Sub(noon))
		}
	}
}

// shift lets everything be read that much later.
func shift(r *Observations, by time.Duration) {
	r.Now = r.Now.Add(by)
	r.Kafka.At, r.Cluster.At, r.Redis.At, r.Enforcers.At = r.Now, r.Now, r.Now, r.Now
	r.Kafka.Value.Moved, r.Redis.Value.Now, r.Redis.Value.Shards[0].Beat, r.Redis.Value.Shards[0].Applied = r.Now, r.Now, r.Now, r.Now
	for i := range r.Cluster.Value.Members {
		r.Cluster.Value.Members[i].Now = r.Now
	}
}

// A member that has left is missed, until another one has come instead.
func TestMemberThatLeft(t *testing.T) {
	_, memory := Judge(Memory{}, well())
	r := well()
	shift(r, time.Minute)
	r.Cluster.Value.Members = r.Cluster.Value.Members[:1]
	chain, memory := Judge(memory, r)
	checkJudged(t, &chain, judged{"aggregators": {Warn, "b has left the group"}})
	r = well()
	shift(r, 2*time.Minute)
	r.Cluster.Value.Members[1].Instance = "c"
	chain, memory = Judge(memory, r)
	checkJudged(t, &chain, judged{})
	r = well()
	shift(r, 2*time.Hour)
	r.Cluster.Value.Members = r.Cluster.Value.Members[:1]
	chain, _ = Judge(memory, r)
	checkJudged(t, &chain, judged{})
}
