// Alerts by what they mean for users: those that wake somebody up, then those that can wait. Severity and summary
// are those of internal/run/health. Each has a section of its name in docs/runbooks.md.
{
  local c = $._config,
  local findings = import 'findings.json',
  local q = (import 'queries.libsonnet') + { _config:: c },
  local metric = q.metric,
  local process = '%s, %s' % [c.job, c.instance],
  local job = '{{ $labels.%s }}' % c.job,
  local who = '{{ $labels.%s }} of %s' % [c.instance, job],

  local alert(name, expr, description) = {
    alert: 'Tallygate' + name,
    expr: std.strReplace(std.stripChars(expr, ' \n'), '\n', ' '),
    [if c.waits[name] != '0s' then 'for']: c.waits[name],
    labels: { severity: c[findings[name].severity] },
    annotations: {
      summary: findings[name].says,
      description: std.strReplace(std.stripChars(description, ' \n'), '\n', ' '),
      runbook_url: '%s#tallygate%s' % [c.runbooks, std.asciiLower(name)],
    },
  },
  local growth(name, matchers, window) = 'increase(%s[%s])' % [metric(name, matchers), window],

  prometheusAlerts+:: {
    groups+: [
      { name: 'tallygate', rules: counting + storing + enforcing + strict },
      { name: 'tallygate-warnings', rules: programs + rules + latency + producers },
    ],
  },

  local counting = [
    alert(
      'CountingStopped',
      'max(min by (partition) (%s)) > %d' % [metric('partition_lag_seconds'), c.lagSeconds],
      'The partition that is furthest behind was counted to its end {{ $value | humanizeDuration }} ago. Nobody new is blocked there.',
    ),
    alert(
      'NoAggregator',
      'absent(%s)' % metric('partition_lag_seconds'),
      'Nothing is counted, and no verdict is issued. Enforcers keep the blocks that they have until these end.',
    ),
    alert(
      'NothingDurable',
      'time() - min(%s) > %d' % [metric('last_checkpoint_timestamp_seconds'), c.durableSeconds],
      'The last checkpoint of a partition is {{ $value | humanizeDuration }} old. A new owner would count all of that again.',
    ),
    alert(
      'PartitionFails',
      'sum by (partition) (%s) > %d' % [growth('partition_failures_total', [], c.failuresWindow), c.failures],
      'Partition {{ $labels.partition }} failed {{ $value | humanize }} times within %s. Its users are counted late.' % c.failuresWindow,
    ),
    alert(
      'EventsLost',
      'sum by (%s) (%s + %s) > 0' % [process, growth('records_lost_total', [], c.lostWindow), growth('records_unreadable_total', [], c.lostWindow)],
      '%s skipped {{ $value | humanize }} records within %s: retention deleted them first, or they cannot be read.' % [who, c.lostWindow],
    ),
  ],

  local storing = [
    alert(
      'KafkaRefuses',
      'sum by (%s, reason) (%s) > 0' % [c.job, growth('kafka_errors_total', ['reason=~"auth|corrupt|cut"'], c.refusedWindow)],
      '%s: {{ $value | humanize }} errors of the kind {{ $labels.reason }} within %s.' % [job, c.refusedWindow],
    ),
    // Publishers, enforcers and strict limits: job and reason tell which.
    alert(
      'RedisRefuses',
      std.join(' or ', [
        'sum by (%s, reason) (%s) > 0' % [c.job, growth(m + '_errors_total', ['reason=~"auth|memory|tls|shards|old|replica"'], c.refusedWindow)]
        for m in ['publish', 'feed', 'strict']
      ]),
      '%s: {{ $value | humanize }} refusals of the kind {{ $labels.reason }} within %s. New verdicts do not get through.' % [job, c.refusedWindow],
    ),
  ],

  local enforcing = [
    alert(
      'EnforcerBehind',
      'max by (%s) (%s) > %d' % [c.job, metric('blocklist_staleness_seconds'), c.stalenessSeconds],
      'The enforcer of %s that is furthest behind is so by {{ $value | humanizeDuration }}. It enforces only the verdicts that it has.' % job,
    ),
    alert(
      'NoEnforcer',
      'absent(%s) and on () sum(%s) > 0' % [metric('blocklist_staleness_seconds'), metric('verdicts_total', ['state="block"', 'mode="enforce"'])],
      'Aggregators issue verdicts, and nothing that enforces them is known to Prometheus.',
    ),
  ],

  local strict = [
    alert(
      'StrictInDoubt',
      'time() - min(%s > 0) > %d' % [metric('strict_doubt_since_timestamp_seconds'), c.strictSeconds],
      'For {{ $value | humanizeDuration }} Redis may not grant permits of strict rules in at least one partition.',
    ),
    alert(
      'PermitsInDoubt',
      'sum by (%s) (%s) > 0' % [c.job, growth('admits_total', ['result="in_doubt"'], c.refusedWindow)],
      '%s answered {{ $value | humanize }} requests without a permit within %s, as --on-doubt says.' % [job, c.refusedWindow],
    ),
  ],

  local programs = [
    alert(
      'ProgramDown',
      '%s == 0' % q.of('up', ['job=~"%s"' % c.jobs]),
      '%s does not answer when it is scraped.' % who,
    ),
    alert(
      'ClockSkew',
      'abs(%(clock)s - timestamp(%(clock)s)) > %(seconds)d' % { clock: metric('clock_timestamp_seconds'), seconds: c.clockSeconds },
      "%s differs from Prometheus' clock by {{ $value | humanizeDuration }}. Enforcers end blocks by their own clock." % who,
    ),
    alert(
      'RedisClock',
      'max by (%s, %s) (abs(%s)) > %d' % [c.job, c.instance, metric('strict_clock_ahead_seconds'), c.clockSeconds],
      "%s and the clock by which Redis counts strict limits are {{ $value | humanizeDuration }} apart. From a minute on, strict limits deny." % who,
    ),
    alert(
      'CertificateExpires',
      '%s - time() < %d' % [metric('certificate_expiry_timestamp_seconds'), c.certificateSeconds],
      'The certificate of --{{ $labels.option }} at %s expires in {{ $value | humanizeDuration }}.' % who,
    ),
    alert(
      'NotifyFails',
      'sum by (receiver, reason) (%s) > 0' % growth('notify_failed_total', [], c.mistakeWindow),
      'The receiver {{ $labels.receiver }} did not take {{ $value | humanize }} of them within %s: {{ $labels.reason }}.' % c.mistakeWindow,
    ),
  ],

  local rules = [
    alert(
      'RulesBroken',
      'min by (%s) (%s) == 0' % [process, metric('rules_file_ok')],
      '%s counts by older rules until the file is valid. A new instance would not become ready.' % who,
    ),
    alert(
      'RulesDiffer',
      'max(%s) > 0' % metric('rules_differ'),
      '{{ $value | humanize }} instances do not run the rules that the others run.',
    ),
    alert(
      'MembersDiffer',
      'max by (what) (%s) > 0' % metric('members_differ'),
      '{{ $value | humanize }} instances differ in {{ $labels.what }}. If it is redis, verdicts of some partitions reach no enforcer.',
    ),
    alert(
      'FuseBlown',
      'sum by (rule) (%s) > 0' % growth('fuses_blown_total', [], c.fuseWindow),
      'The fuse of {{ $labels.rule }} blew in {{ $value | humanize }} partitions within %s. The rule blocks nobody there.' % c.fuseWindow,
    ),
    alert(
      'KillSwitch',
      'count by (%s) (%s == 0) > 0' % [c.job, metric('enforcement_enabled')],
      'Of %s, {{ $value }} processes allow everything, whatever the rules say.' % job,
    ),
    alert(
      'Overshoot',
      |||
        sum by (rule) (rate(%s[%s])) / sum by (rule) (rate(%s[%s])) > %g
        unless on (rule) sum by (rule) (%s) > 0
      ||| % [
        metric('overshoot_events_total', ['mode="enforce"']),
        c.rateWindow,
        metric('rule_matches_total'),
        c.rateWindow,
        c.overshootShare,
        metric('rule_checks_total', ['action=~"throttle|log"']),
      ],
      'Of the events that {{ $labels.rule }} counts, {{ $value | humanizePercentage }} are above its limit: somebody who is blocked is let in.',
    ),
    alert(
      'Unpermitted',
      'sum by (rule) (%s) > 0' % growth('unpermitted_total', [], c.refusedWindow),
      '{{ $value | humanize }} events of {{ $labels.rule }} within %s had no permit. Its limit may be exceeded.' % c.refusedWindow,
    ),
  ],

  local latency = [
    alert(
      'SlowFeed',
      'histogram_quantile(0.99, sum by (%s, le) (rate(%s[%s]))) > %g' % [c.job, metric('event_to_enforced_seconds_bucket'), c.rateWindow, c.slowFeedSeconds],
      'At %s one block of a hundred takes {{ $value | humanizeDuration }} or more after its event.' % job,
    ),
  ],

  local producers = [
    alert(
      'EventsDropped',
      'sum by (%s, reason) (%s) > 0' % [c.job, growth('emit_dropped_total', [], c.refusedWindow)],
      '%s dropped {{ $value | humanize }} events within %s: {{ $labels.reason }}. They are never counted.' % [job, c.refusedWindow],
    ),
    alert(
      'DeadLetters',
      'sum(%s) > 0' % growth('events_total', ['result="dead_letter"'], c.mistakeWindow),
      '{{ $value | humanize }} records went to the dead-letter topic within %s. They are not counted.' % c.mistakeWindow,
    ),
    // Labels that the three metrics do not share tell which of them it is.
    alert(
      'ProducerMistake',
      'sum by (reason, what, name, client) (%s) > 0' % std.join(' or ', [
        growth(m, [], c.mistakeWindow)
        for m in ['event_suspects_total', 'vocabulary_mismatches_total', 'events_misplaced_total']
      ]),
      |||
        {{ $value | humanize }} events within %s
        {{ if $labels.client }}of {{ $labels.client }} were sent to partitions that are not their uid's
        {{- else if $labels.what }}contradict the vocabulary: {{ $labels.what }} {{ $labels.name }}
        {{- else }}look wrong: {{ $labels.reason }}{{ end }}. Rules may not count them as meant.
      ||| % c.mistakeWindow,
    ),
  ],
}
