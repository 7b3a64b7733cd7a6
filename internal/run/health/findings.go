package health

import (
	"cmp"
	"slices"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// The links of the chain. Each enforcer has one of its own.
const (
	linkEvents      = "events"
	linkAggregators = "aggregators"
	linkVerdicts    = "verdicts"
	linkRedis       = "redis"
	linkEnforcers   = "enforcers"
)

const (
	ntp        = "synchronize all machines by NTP (chrony, systemd-timesyncd): a clock that is ahead ends blocks early"
	lastErrors = "look at the members' last errors on the cluster page"
)

// Findings is the table. Those of a link stand in the order in which they are told: the first that is the case is the
// link's cause.
var Findings = []Finding{
	// Kafka.
	{Name: "kafka-refuses-us", Link: linkEvents, Check: "kafka", Runbook: "TallygateKafkaRefuses", Says: "Kafka does not let in who looks.",
		Do:    "see --kafka-tls, --kafka-sasl, --kafka-user: those of other programs may be refused, too",
		judge: func(o *Observations) []Fault { return refuses(o, "Kafka", &o.Kafka) }},
	{Name: "kafka-away", Link: linkEvents, Check: "kafka", Runbook: "TallygateKafkaRefuses", Says: "Kafka does not answer.",
		Do:    "check --kafka, that Kafka runs, and that its port is open from here; a listener with TLS or SASL needs --kafka-tls or --kafka-sasl",
		judge: func(o *Observations) []Fault { return away(o, "Kafka", &o.Kafka) }},
	{Name: "kafka-refuses", Link: linkEvents, Runbook: "TallygateKafkaRefuses", Severity: Critical,
		Says: "Kafka refuses requests, or a log is damaged.",
		Do:   "give the aggregators' principal its rights again: tallygate doctor --acls prints the commands",
		judge: func(o *Observations) []Fault {
			return troubled(o, "Kafka", func(a *api.AggregatorStatus) *api.Trouble { return a.Kafka })
		}},
	{Name: "topic-hidden", Link: linkEvents, Runbook: "TallygateKafkaRefuses", Says: "Kafka does not show the topic of events to who looks.",
		Do: "give the console's principal its rights: tallygate doctor --acls prints the commands", judge: hidden},
	{Name: "topic-missing", Link: linkEvents, Runbook: "TallygateKafkaRefuses", Says: "There is no topic of events.",
		Do: "start an aggregator, which makes it; or correct --prefix, or the console's rights", judge: noTopic},
	{Name: "no-leader", Link: linkEvents, Check: "replication", Runbook: "TallygateKafkaRefuses", Says: "A partition has no leader.",
		Do: "start the brokers that are away", judge: leaderless},
	{Name: "out-of-sync", Link: linkEvents, Check: "replication", Runbook: "TallygateKafkaRefuses", Says: "A replica is out of sync.",
		Do: "start the broker that is away, or wait until it has caught up", judge: thin},

	// Aggregators.
	{Name: "no-aggregator", Link: linkAggregators, Kind: "aggregators-gone", Runbook: "TallygateNoAggregator", Severity: Critical,
		Says: "No aggregator is running or scraped.",
		Do:   "start them. If they run, check --aggregator of the console, and the network to them", judge: noAnswer},
	{Name: "no-member", Link: linkAggregators, Check: "group", Runbook: "TallygateNoAggregator", Says: "No aggregator is in the group.",
		Do: "start an aggregator", judge: noMember},
	{Name: "no-owner", Link: linkAggregators, Check: "group", Kind: "aggregators-gone", Runbook: "TallygateNoAggregator",
		Says:  "Nobody counts a partition.",
		Do:    "start the aggregator that is away. Others take its partitions over after --session-timeout. If another program uses this group, stop it",
		judge: unowned},
	{Name: "members-differ", Link: linkAggregators, Check: "group", Runbook: "TallygateMembersDiffer", Severity: Warning,
		Says: "Members of the group differ in what must be the same for all.",
		Do:   "start all members of the group with the same --redis, --shards and --broker-time", judge: differs},
	{Name: "partition-fails", Link: linkAggregators, Runbook: "TallygatePartitionFails", Severity: Critical,
		Says: "A partition fails and is taken over again and again.", Do: lastErrors,
		judge: func(o *Observations) []Fault {
			return inState(o, "failed", Bad, " cannot be counted; each attempt is a new takeover")
		}},
	{Name: "program-down", Link: linkAggregators, Runbook: "TallygateProgramDown", Severity: Warning, Says: "A program of Tallygate is down.",
		Do: "start it again, or wait until others have its partitions", judge: missing},
	{Name: "takeover", Link: linkAggregators, Runbook: "TallygateNoAggregator", Says: "A partition is being taken over.",
		Do: "wait: its keys are read before it counts on",
		judge: func(o *Observations) []Fault {
			return inState(o, "recovering", Warn, " is being taken over: its keys are read before it counts on")
		}},
	{Name: "member-left", Link: linkAggregators, Runbook: "TallygateProgramDown", Says: "An aggregator has left, and nobody came instead.",
		Do: "start it again, if that was not intended. The others count its partitions", judge: hasLeft},
	{Name: "late", Link: linkAggregators, Check: "group", Kind: "lag", Runbook: "TallygateCountingStopped", Severity: Critical, Over: Late.Bad,
		Says:  "Events are counted too late or not at all.",
		Do:    "look whether events come faster than they are counted, and at the members' last errors; start more aggregators, at most one per partition",
		judge: late},
	{Name: "not-ready", Link: linkAggregators, Runbook: "TallygateNoAggregator", Says: "An aggregator is not ready.", Do: lastErrors,
		judge: notReady},
	{Name: "rules-rejected", Banner: true, Kind: "rules-rejected", Runbook: "TallygateRulesBroken", Severity: Warning, Page: "/cluster#members",
		Says: "An instance's rule file, or a file that it names, is broken.", Do: "correct the file; tallygate check says where it is wrong",
		judge: rejected},
	{Name: "fuse", Banner: true, Runbook: "TallygateFuseBlown", Severity: Warning,
		Says: "A rule wanted to block too many users, and was switched to shadow mode.",
		Do:   "look whom it hit, then correct the rule and load it again", judge: blown},
	{Name: "rules-differ", Banner: true, Check: "group", Runbook: "TallygateRulesDiffer", Severity: Warning, Page: "/cluster#members",
		Says: "Members of the group run different rules.",
		Do:   "wait some seconds; then look at the last errors of the one behind: all need the same rule file", judge: rulesDiffer},
	{Name: "certificate", Banner: true, Runbook: "TallygateCertificateExpires", Severity: Warning, Over: CertificateDue,
		Says: "A certificate expires soon.",
		Do:   "put a new one in its file: it is read without a restart", judge: certificates},
	{Name: "member-clock", Banner: true, Runbook: "TallygateClockSkew", Page: "/cluster#members", Says: "The clock of an aggregator is wrong.",
		Do: "let NTP set both", judge: memberClocks},
	{Name: "exemptions", Banner: true, Runbook: "kill-switch", Page: "/exemptions", Says: "Exemptions end soon.", Do: "extend what is still needed",
		judge: exemptionsEnd},

	// From the verdicts to the blocklist.
	{Name: "unpublished", Link: linkVerdicts, Check: "blocklist", Runbook: "TallygateEnforcerBehind", Says: "Verdicts are not in Redis yet.",
		Do: "look at the aggregators' last errors: they write into Redis", judge: unpublished},
	{Name: "filling", Link: linkVerdicts, Check: "blocklist", Runbook: "TallygateEnforcerBehind", Says: "Redis is being filled for the first time.",
		Do: "wait", judge: filling},
	{Name: "redis-behind", Link: linkVerdicts, Check: "blocklist", Runbook: "TallygateEnforcerBehind", Says: "What Redis has is old.",
		Do: "look whether a partition has no owner: its owner publishes", judge: stale},
	{Name: "redis-refuses-us", Link: linkRedis, Check: "redis", Runbook: "TallygateRedisRefuses", Says: "Redis does not let in who looks.",
		Do:    "see --redis-user, --redis-password-file and TALLYGATE_REDIS_PASSWORD: those of other programs may be refused, too",
		judge: func(o *Observations) []Fault { return refuses(o, "Redis", &o.Redis) }},
	{Name: "redis-away", Link: linkRedis, Check: "redis", Runbook: "TallygateRedisRefuses", Says: "Redis does not answer.",
		Do:    "check --redis, that Redis runs, and that its port is open from here; a listener with TLS needs --redis-tls",
		judge: func(o *Observations) []Fault { return away(o, "Redis", &o.Redis) }},
	{Name: "redis-refuses", Link: linkRedis, Runbook: "TallygateRedisRefuses", Severity: Critical, Says: "Redis refuses a program.",
		Do: "give the aggregators' user its rights and password again: tallygate doctor --acls prints them",
		judge: func(o *Observations) []Fault {
			return troubled(o, "Redis", func(a *api.AggregatorStatus) *api.Trouble { return a.Redis })
		}},
	{Name: "replica", Link: linkRedis, Check: "redis-role", Runbook: "TallygateRedisRefuses", Says: "Redis is a replica.",
		Do: "name the primary in --redis, or the Sentinels with --redis-master", judge: servers(replica)},
	{Name: "loading", Link: linkRedis, Check: "redis-role", Runbook: "TallygateRedisRefuses", Says: "Redis loads its data.", Do: "wait",
		judge: servers(loading)},
	{Name: "evicts", Link: linkRedis, Check: "redis-policy", Runbook: "TallygateRedisRefuses", Says: "Redis may evict blocks.",
		Do: "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf (or in the service's settings)", judge: servers(evicts)},
	{Name: "redis-full", Link: linkRedis, Check: "redis-policy", Runbook: "TallygateRedisRefuses", Says: "Redis' memory is full, or nearly.",
		Do: "raise maxmemory, or move other data out of this Redis", judge: servers(full)},
	{Name: "shards-differ", Link: linkRedis, Check: "blocklist", Runbook: "TallygateRedisRefuses",
		Says: "The blocklist has another number of shards.",
		Do:   "give all programs the same --shards", judge: shardsDiffer},
	{Name: "unwritten", Link: linkRedis, Check: "blocklist", Runbook: "TallygateRedisRefuses", Says: "The blocklist was never written.",
		Do: startPublisher, judge: unwritten},
	{Name: "no-heartbeat", Link: linkRedis, Check: "blocklist", Runbook: "TallygateEnforcerBehind", Says: "Nobody writes the blocklist.",
		Do: startPublisher, judge: heartbeat},
	{Name: "beyond", Link: linkRedis, Check: "blocklist", Runbook: "lost-kafka", Says: "Redis has verdicts that Kafka has not.",
		Do: "delete the blocklist's keys, and it is rebuilt", judge: beyond},

	// Enforcers.
	{Name: enforcerGone, Link: linkEnforcers, Check: "enforcers", Kind: "enforcer-gone", Runbook: "TallygateProgramDown",
		Says: "An enforcer is gone without a word.",
		Do: "look whether it runs, and reaches Redis. One that was told to stop says goodbye, " +
			"and is not here; one that was killed on purpose is forgotten after an hour",
		one: "%s: it was killed, or cannot reach Redis", many: "%s gone without a word: %s",
		beat: func(b *presence.Beat) (Level, string) { return Bad, "not heard of for " + span(b.Age) }},
	{Name: "kill-switch", Link: linkEnforcers, Banner: true, Check: "enforcers", Runbook: "TallygateKillSwitch", Severity: Warning,
		Page: "/cluster#enforcers",
		Says: "A kill switch has been on for long.",
		Do: "take the kill switch back when it is no longer needed: " +
			"remove the file of --off-file, restart without TALLYGATE_ENFORCE=off, or have the service call SetEnabled(true)",
		one: "a kill switch (%s) allows everything", many: "a kill switch is on: %[2]s allow everything",
		beat: func(b *presence.Beat) (Level, string) {
			return when(!b.Enabled, Bad), cmp.Or(b.OffCause, "unknown cause")
		}},
	{Name: "enforcer-fails", Link: linkEnforcers, Check: "enforcers", Runbook: "TallygateEnforcerBehind",
		Says: "An enforcer cannot follow the blocklist.",
		Do:   "check its user, password and rights at Redis, which tallygate doctor --acls prints, and the network between them; its log says more",
		one:  "it cannot follow the blocklist: %s", many: "%s unable to follow the blocklist: %s",
		beat: func(b *presence.Beat) (Level, string) { return when(b.Error != "", Bad), short(b.Error) }},
	{Name: "enforcer-empty", Link: linkEnforcers, Check: "enforcers", Kind: "enforcer-stale", Runbook: "TallygateEnforcerBehind",
		Says: "An enforcer has no blocklist yet.",
		Do:   "wait a few seconds; then look whether Redis has a blocklist, and at the enforcer's log", one: "%s: it answers as --in-doubt says",
		many: "%s without a blocklist: %s",
		beat: func(b *presence.Beat) (Level, string) { return when(b.Staleness < 0, Bad), "it has no blocklist yet" }},
	{Name: "enforcer-stale", Link: linkEnforcers, Check: "enforcers", Kind: "enforcer-stale", Runbook: "TallygateEnforcerBehind",
		Says: "An enforcer is stale.",
		Do:   "look at the links before it (is the blocklist written?), then at its log: does it reach Redis?",
		one:  "%s: it answers as --in-doubt says",
		many: "%s stale: %s",
		beat: func(b *presence.Beat) (Level, string) {
			return when(b.Stale && b.Staleness >= 0, Bad), "its blocklist is " + span(Seconds(b.Staleness)) + " old"
		}},
	{Name: "clock-skew", Link: linkEnforcers, Banner: true, Check: "enforcers", Runbook: "TallygateClockSkew", Severity: Warning,
		Over: Clock.Warn + ClockMargin, Page: "/cluster#enforcers",
		Says: "The clock of a program is wrong.", Do: ntp, one: "%s: blocks end at the wrong time there", many: "clocks differ: %[2]s", beat: skewed},
	{Name: "enforcer-behind", Link: linkEnforcers, Check: "enforcers", Runbook: "TallygateEnforcerBehind", Severity: Critical, Over: Behind.Bad,
		Says: "An enforcer gets no new verdicts.",
		Do:   "look at the links before it (is the blocklist written?), then at its log: does it reach Redis?", one: "%s", many: "%s behind: %s",
		beat: func(b *presence.Beat) (Level, string) {
			behind := Seconds(b.Staleness)
			return when(!b.Stale, Behind.Level(behind)), "its blocklist is " + span(behind) + " behind"
		}},
	{Name: "enforcer-versions", Check: "enforcers", Runbook: "restart", Says: "Enforcers have different versions.", Do: "finish the upgrade",
		judge: versions},
	{Name: "clocks", Check: "clocks", Runbook: "TallygateClockSkew", Says: "The clocks of machines differ.", Do: ntp, judge: clocks},
	{Name: "strict-clock", Check: "strict-clocks", Runbook: "TallygateRedisClock", Severity: Warning, Over: Clock.Warn + ClockMargin,
		Says: "Redis' clock is wrong, or was.",
		Do:   "synchronize Redis' machine by NTP (chrony, systemd-timesyncd); nothing is to be done about the time that is past", judge: strictClock},

	// What only Prometheus knows, by the programs' metrics.
	{Name: "not-durable", Runbook: "TallygateNothingDurable", Severity: Critical, Over: time.Minute,
		Says: "Checkpoints fail and counts are not durable.", Do: "bring the missing brokers back, or mend the topic"},
	{Name: "events-lost", Runbook: "TallygateEventsLost", Severity: Critical, Says: "Records of events were lost before they were counted.",
		Do: "give the events a longer retention; find the producer of records that cannot be read"},
	{Name: "no-enforcer", Runbook: "TallygateNoEnforcer", Severity: Critical,
		Says: "Users are blocked by rules, and no enforcer is running or scraped.",
		Do:   "start one. Those of older versions do not announce themselves"},
	{Name: "strict-in-doubt", Runbook: "TallygateStrictInDoubt", Severity: Critical, Over: time.Minute,
		Says: "Strict limits of a partition have denied for more than a minute.", Do: "bring Redis back, or wait for the rule's hold"},
	{Name: "permits-in-doubt", Runbook: "TallygatePermitsInDoubt", Severity: Critical, Says: "A decision server cannot get permits of strict limits.",
		Do: "mend its network, or its rights in Redis"},
	{Name: "notify-fails", Runbook: "TallygateNotifyFails", Severity: Warning, Says: "Notifications do not arrive.",
		Do: "mend the receiver, or its address or secret"},
	{Name: "overshoot", Runbook: "TallygateOvershoot", Severity: Warning, Says: "Users do much more than a rule allows.",
		Do: "let the service ask, and emit denials as limited"},
	{Name: "unpermitted", Runbook: "TallygateUnpermitted", Severity: Warning, Says: "A service acts under a strict rule without asking.",
		Do: "let it ask for a permit, and put that into the event"},
	{Name: "slow-feed", Runbook: "TallygateSlowFeed", Severity: Warning, Over: 2 * time.Second, Says: "Blocks come late to where they are enforced.",
		Do: "take the load off Redis, or mend the network"},
	{Name: "events-dropped", Runbook: "TallygateEventsDropped", Severity: Warning, Says: "A service drops events before they reach Kafka.",
		Do: "look at the reason: Kafka, its rights, or the service"},
	{Name: "dead-letters", Runbook: "TallygateDeadLetters", Severity: Warning, Says: "Producers send malformed events.",
		Do: "tallygate dead-letters shows them; mend their producer"},
	{Name: "producer-mistake", Runbook: "TallygateProducerMistake", Severity: Warning, Says: "Events look like a mistake of their producer.",
		Do: "tell the service's developers what the log advises"},
}

const startPublisher = "start an aggregator with --redis, or one with --publish-only; check that --redis, --prefix and --shards are theirs"

// Named is a finding; nil if there is none of that name.
func Named(name string) *Finding {
	if i := slices.IndexFunc(Findings, func(f Finding) bool { return f.Name == name }); i >= 0 {
		return &Findings[i]
	}
	return nil
}

// Of judges the findings that a function picks, in the order of the table.
func Of(o *Observations, pick func(*Finding) bool) (all []Fault) {
	for i := range Findings {
		if f := &Findings[i]; pick(f) {
			all = append(all, f.Faults(o)...)
		}
	}
	return all
}
