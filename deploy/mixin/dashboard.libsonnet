// The dashboard: the chain from an event to a denial, then each rule, then what the programs need.
{
  local c = $._config,
  local q = (import 'queries.libsonnet') + { _config:: c },
  local p = import 'panels.libsonnet',
  local chosen = ['job=~"$job"', 'instance=~"$instance"'],
  local of(name, matchers=[]) = q.metric(name, chosen + matchers),
  local ofRule(name, matchers=[]) = of(name, ['rule=~"$rule"'] + matchers),
  local rate(vector) = 'rate(%s[$__rate_interval])' % vector,
  local by(labels, vector) = 'sum by (%s) (%s)' % [labels, vector],
  local quantile(share, name, labels='le') = 'histogram_quantile(%g, sum by (%s) (%s))' % [share, labels, rate(of(name + '_bucket'))],
  local quantiles(name, what) = [
    p.query(quantile(share[0], name), '%s %s' % [what, share[1]], exemplar=true)
    for share in [[0.5, 'p50'], [0.99, 'p99']]
  ],

  // Programs have the first, services with the Go packages one of the others.
  local everyProcess = '__name__=~"tallygate_(build_info|blocklist_entries|emit_sent_total)"',

  local chain = {
    title: 'The chain',
    panels: [
      p.light('Events are counted', 'How long ago the partition that is furthest behind was counted to its end.', 's', 'max(min by (partition) (%s))' % of('partition_lag_seconds'), [[null, 'green'], [5, 'orange'], [c.lagSeconds, 'red']]),
      p.light('Partitions with an owner', 'It should be the number of partitions.', 'none', 'sum(%s)' % of('partitions_owned'), [[null, 'red'], [1, 'green']]),
      p.light('Counts are durable', 'The age of the oldest last checkpoint.', 's', 'time() - min(%s)' % of('last_checkpoint_timestamp_seconds'), [[null, 'green'], [10, 'orange'], [c.durableSeconds, 'red']]),
      p.light('Enforcers are in step', 'How far the enforcer that is furthest behind is behind the verdicts.', 's', 'max(%s)' % of('blocklist_staleness_seconds'), [[null, 'green'], [3, 'orange'], [c.stalenessSeconds, 'red']]),
      p.light('Enforcers', 'Processes that enforce and are scraped: decision servers, and services with the Go package.', 'none', 'count(%s)' % of('blocklist_staleness_seconds'), [[null, 'red'], [1, 'green']]),
      p.light('Kill switches on', 'Enforcers that allow everything.', 'none', 'count(%s == 0) or vector(0)' % of('enforcement_enabled'), [[null, 'green'], [1, 'red']]),
      p.lines('Events in, and counted', 'What services sent, and what became of events. Counted, repeat, late and unknown_refund are once per key, so they may be more than was sent.', 'ops', [
        p.query('sum(%s)' % rate(of('emit_sent_total')), 'sent by Go services'),
        p.query(by('result', rate(of('events_total'))), '{{result}}'),
      ]),
      p.lines('Lag', 'How long ago a partition was last counted to its end, and the age of what other partitions forwarded to it.', 's', [
        p.query('min by (partition) (%s)' % of('partition_lag_seconds'), 'partition {{partition}}'),
        p.query('max(%s)' % of('loop_lag_seconds'), 'forwarded'),
      ]),
      p.lines('Verdicts', 'Published, moved ends included.', 'ops', [
        p.query(by('state, mode', rate(ofRule('verdicts_total'))), '{{state}} {{mode}}'),
      ], stacked=true),
      p.lines('Kafka and Redis', 'Failed attempts, by reason: of aggregators at Kafka and Redis, and of enforcers at Redis.', 'ops', [
        p.query(by('reason', rate(of('kafka_errors_total'))), 'Kafka: {{reason}}'),
        p.query(by('reason', rate(of('publish_errors_total'))), 'publisher: {{reason}}'),
        p.query(by('reason', rate(of('feed_errors_total'))), 'enforcer: {{reason}}'),
        p.query(by('reason', rate(of('presence_errors_total'))), 'to announce an enforcer: {{reason}}'),
        p.query('sum(increase(%s[$__rate_interval]))' % of('blocklist_refills_total'), 'partitions refilled in Redis'),
      ]),
      p.lines('Staleness of enforcers', 'How far each is behind the verdicts. Up to a second is normal.', 's', [
        p.query('max by (job, instance) (%s)' % of('blocklist_staleness_seconds'), '{{job}} {{instance}}'),
      ]),
      p.lines('Checks', 'Of the decision servers, by result.', 'ops', [
        p.query(by('result', rate(of('checks_total'))), '{{result}}'),
        p.query('sum(%s)' % rate(of('checks_in_doubt_total')), 'while stale'),
      ], stacked=true),
    ],
  },

  local rules = {
    title: 'Rules',
    panels: [
      p.lines('Events counted', 'Under each rule or limit.', 'ops', [p.query(by('rule', rate(ofRule('rule_matches_total'))), '{{rule}}')]),
      p.lines('Blocked now', 'Keys with an enforced block in force, as the enforcer with the most knows it.', 'none', [
        p.query('max by (rule) (%s)' % ofRule('rule_blocked_keys'), '{{rule}}'),
      ]),
      p.lines('Would be blocked', 'The same of rules in shadow mode, and of those whose fuse has blown.', 'none', [
        p.query('max by (rule) (%s)' % ofRule('rule_shadow_keys'), '{{rule}}'),
        p.query(by('rule', 'increase(%s[$__rate_interval])' % ofRule('fuses_blown_total')), 'fuse of {{rule}}'),
      ]),
      p.lines('Denials', 'Checks that a verdict of the rule decided, by action.', 'ops', [
        p.query(by('rule, action', rate(ofRule('rule_checks_total'))), '{{rule}} {{action}}'),
      ]),
      p.lines('Would deny', 'Checks that a rule in shadow mode would have denied.', 'ops', [
        p.query(by('rule', rate(ofRule('rule_would_deny_total'))), '{{rule}}'),
      ]),
      p.lines('Near the limit', 'Events that left a key at four fifths of a limit or more, and not above it.', 'ops', [
        p.query(by('rule', rate(ofRule('near_limit_events_total'))), '{{rule}}'),
      ]),
      p.lines('Overshoot', 'Events above the limit of an enforced rule. docs/operations.md explains what is normal.', 'ops', [
        p.query(by('rule', rate(ofRule('overshoot_events_total', ['mode="enforce"']))), '{{rule}}'),
      ]),
      p.lines('How late overshoot is', 'From the beginning of the verdict until an event above the limit. The greatest is the bound of the last bucket that has any.', 's', [
        p.query('histogram_quantile(0.99, sum by (le, rule) (%s))' % rate(ofRule('overshoot_delay_seconds_bucket')), '{{rule}} p99'),
        p.query('histogram_quantile(1, sum by (le) (%s))' % rate(ofRule('overshoot_delay_seconds_bucket')), 'the greatest of all'),
      ]),
      p.lines('What shadow rules would have above their limits', 'Of rules in mode: shadow, and of those whose fuse has blown.', 'ops', [
        p.query(by('rule', rate(ofRule('overshoot_events_total', ['mode="shadow"']))), '{{rule}}'),
      ]),
      p.lines('Events that a rule could not evaluate', 'By rule and reason: the reference says what each means.', 'ops', [
        p.query(by('rule, reason', rate(ofRule('rule_skips_total'))), '{{rule}} {{reason}}'),
      ]),
      p.lines('Versions of the rules', 'What each instance runs, how many differ from it, and whether its file is valid.', 'none', [
        p.query('max by (instance) (%s)' % of('rules_version'), 'version at {{instance}}'),
        p.query('max(%s)' % of('rules_differ'), 'members that differ'),
        p.query('min by (instance) (%s)' % of('rules_file_ok'), 'file of {{instance}} is valid'),
      ]),
    ],
  },

  local latency = {
    title: 'Latency',
    panels: [
      p.lines('From an event to its denial', 'Until Kafka has the verdict, and until an enforcer has the block. Clocks of several machines are compared. A point leads to its trace.', 's',
              quantiles('event_to_verdict_seconds', 'verdict') + quantiles('event_to_enforced_seconds', 'enforced')),
      p.heat('From an event until it is enforced', 'How many blocks took how long.', 'sum by (le) (increase(%s[$__rate_interval]))' % of('event_to_enforced_seconds_bucket')),
      p.lines('Checkpoints', 'How long they take, and how long a slice of one makes events wait.', 's', [
        p.query(quantile(0.99, 'checkpoint_duration_seconds'), 'duration p99'),
        p.query(quantile(0.99, 'checkpoint_pause_seconds'), 'pause p99'),
      ]),
    ],
  },

  local strict = {
    title: 'Strict limits',
    panels: [
      p.lines('Permits', 'Of the decision servers, by result.', 'ops', [
        p.query(by('result', rate(of('admits_total'))), '{{result}}'),
        p.query('sum(%s)' % rate(of('admit_unanswered_total')), 'questions without an answer'),
      ], stacked=true),
      p.lines('How long a permit takes', 'With its wait in line; and how far Redis is behind what was counted.', 's', quantiles('admit_seconds', 'permit') + [
        p.query('max(%s)' % of('strict_unsettled_seconds'), 'Redis behind the counts'),
      ]),
      p.lines('What strict limits miss', 'Permits whose actions did not tell how they ended; events without a permit; partitions that may not grant.', 'none', [
        p.query(by('rule', 'increase(%s[$__rate_interval])' % ofRule('strict_lost_permits_total')), '{{rule}}: permits lost'),
        p.query(by('rule', 'increase(%s[$__rate_interval])' % ofRule('unpermitted_total')), '{{rule}}: without a permit'),
        p.query('count(%s > 0) or vector(0)' % of('strict_doubt_since_timestamp_seconds'), 'partitions in doubt'),
      ]),
    ],
  },

  local producers = {
    title: 'Services and their events',
    panels: [
      p.lines('Sent by services', 'Events of Go services that Kafka acknowledged, and what they dropped.', 'ops', [
        p.query(by('job', rate(of('emit_sent_total'))), '{{job}}'),
        p.query(by('job, reason', rate(of('emit_dropped_total'))), '{{job}} dropped: {{reason}}'),
        p.query(by('job, reason', rate(of('emit_errors_total'))), '{{job}} tried again: {{reason}}'),
      ]),
      p.lines('Waiting for Kafka', 'Events that services hold.', 'none', [p.query(by('job', of('emit_queued')), '{{job}}')]),
      p.lines('Enforced by services', 'Verdicts in force and what is left, the enforcer with the most; processes that are stale; checks without any dimension.', 'none', [
        p.query('max by (job) (%s)' % of('blocklist_entries'), '{{job}}: verdicts'),
        p.query('max by (job) (%s)' % of('quota_entries'), '{{job}}: quotas'),
        p.query(by('job', of('in_doubt')), '{{job}}: stale'),
        p.query(by('job', rate(of('checks_without_dimensions_total'))), '{{job}}: checks without dimensions, a second'),
      ]),
      p.lines('Mistakes of producers', 'Events that look wrong, contradict the vocabulary, or are in the wrong partition; malformed ones.', 'ops', [
        p.query(by('reason', rate(of('event_suspects_total'))), '{{reason}}'),
        p.query(by('what, name', rate(of('vocabulary_mismatches_total'))), '{{what}} {{name}}'),
        p.query(by('client', rate(of('events_misplaced_total'))), 'misplaced by {{client}}'),
        p.query(by('reason', rate(of('event_decode_errors_total'))), 'malformed: {{reason}}'),
        p.query(by('reason', rate(of('integration_suspects_total'))), 'in a service: {{reason}}'),
      ]),
      p.lines('Lost', 'Records that retention deleted, and that cannot be read.', 'none', [
        p.query('sum(increase(%s[$__rate_interval]))' % of('records_lost_total'), 'lost'),
        p.query('sum(increase(%s[$__rate_interval]))' % of('records_unreadable_total'), 'unreadable'),
        p.query(by('partition', 'increase(%s[$__rate_interval])' % of('partition_failures_total')), 'partition {{partition}} failed'),
      ]),
      p.lines('Notifications', 'Messages that receivers took, attempts that failed, and what nobody is told.', 'ops', [
        p.query(by('receiver', rate(of('notify_sent_total'))), '{{receiver}}'),
        p.query(by('receiver, reason', rate(of('notify_failed_total'))), '{{receiver}} failed: {{reason}}'),
        p.query(by('receiver, reason', rate(of('notify_dropped_total'))), '{{receiver}} dropped: {{reason}}'),
      ]),
      p.lines('Clocks', "How far the clock of each program is from Prometheus'.", 's', [
        p.query('%s - timestamp(%s)' % [of('clock_timestamp_seconds'), of('clock_timestamp_seconds')], '{{job}} {{instance}}'),
      ]) { fieldConfig+: { defaults+: { min:: null } } },
    ],
  },

  local programs = {
    title: 'Programs',
    panels: [
      p.lines('Memory', 'Of the process, of the Go heap, and of the states of keys.', 'bytes', [
        p.query(by('job, instance', q.of('process_resident_memory_bytes', chosen)), '{{job}} {{instance}}'),
        p.query(by('job, instance', q.of('go_memstats_heap_inuse_bytes', chosen)), '{{job}} {{instance}} heap'),
        p.query(by('instance', of('state_bytes')), '{{instance}} states'),
      ]),
      p.lines('CPU', 'Seconds of CPU a second.', 'none', [p.query(by('job, instance', rate(q.of('process_cpu_seconds_total', chosen))), '{{job}} {{instance}}')]),
      p.lines('Goroutines', 'They should not grow.', 'none', [p.query(by('job, instance', q.of('go_goroutines', chosen)), '{{job}} {{instance}}')]),
      p.lines("Go's collector", 'The longest pause, and collections a second.', 's', [
        p.query('max by (job, instance) (%s)' % q.of('go_gc_duration_seconds', chosen + ['quantile=~"1|1.0"']), '{{job}} {{instance}}: longest pause'),
        p.query(by('job, instance', rate(q.of('go_gc_duration_seconds_count', chosen))), '{{job}} {{instance}}: collections a second'),
      ]),
      p.lines('Partitions and keys', 'Partitions that each instance owns, and keys in memory.', 'none', [
        p.query(by('instance', of('partitions_owned')), '{{instance}} partitions'),
        p.query(by('instance', of('state_keys')), '{{instance}} keys'),
      ]),
      p.lines('Load of partitions', 'Events a second. A partition far above the others has a hot key: tallygate hot-keys names it.', 'ops', [
        p.query('max by (partition) (%s)' % of('partition_events_per_second'), '{{partition}}'),
      ]),
    ],
  },

  grafanaDashboards+:: {
    'tallygate.json': {
      title: c.dashboard.title,
      uid: c.dashboard.uid,
      tags: c.dashboard.tags,
      schemaVersion: 39,
      editable: true,
      graphTooltip: 1,
      refresh: c.dashboard.refresh,
      time: { from: c.dashboard.from, to: 'now' },
      annotations: { list: [] },
      templating: { list: [
        { name: 'datasource', label: 'Prometheus', type: 'datasource', query: 'prometheus', refresh: 1, current: { text: 'default', value: 'default' }, options: [] },
        p.variable('job', 'Job', 'label_values(%s, job)' % q.of('', [everyProcess])),
        p.variable('instance', 'Instance', 'label_values(%s, instance)' % q.of('', [everyProcess, 'job=~"$job"'])),
        p.variable('rule', 'Rule', 'label_values(%s, rule)' % q.metric('rule_matches_total')),
      ] },
      panels: p.laid([chain, rules, latency, strict, producers, programs]),
    },
  },
}
