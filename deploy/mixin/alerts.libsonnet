// Alerts by what they mean for users: those that wake somebody up, then those that can wait. Each has a
// section of its name in docs/runbooks.md.
{
  local c = $._config,
  local q = (import 'queries.libsonnet') + { _config:: c },
  local metric = q.metric,
  local process = '%s, %s' % [c.job, c.instance],
  local job = '{{ $labels.%s }}' % c.job,
  local who = '{{ $labels.%s }} of %s' % [c.instance, job],

  local alert(name, severity, expr, summary, description) = {
    alert: 'Tallygate' + name,
    expr: std.strReplace(std.stripChars(expr, ' \n'), '\n', ' '),
    [if c.waits[name] != '0s' then 'for']: c.waits[name],
    labels: { severity: severity },
    annotations: {
      summary: summary,
      description: std.strReplace(std.stripChars(description, ' \n'), '\n', ' '),
      runbook_url: '%s#tallygate%s' % [c.runbooks, std.asciiLower(name)],
    },
  },
  local growth(name, matchers, window) = 'increase(%s[%s])' % [metric(name, matchers), window],
  local critical(name, expr, summary, description) = alert(name, c.critical, expr, summary, description),
  local warning(name, expr, summary, description) = alert(name, c.warning, expr, summary, description),

  prometheusAlerts+:: {
    groups+: [
      { name: 'tallygate', rules: counting + storing + enforcing + strict },
      { name: 'tallygate-warnings', rules: programs + rules + latency + producers },
    ],
  },

  local counting = [
    critical(
      'CountingStopped',
      'max(min by (partition) (%s)) > %d' % [metric('partition_lag_seconds'), c.lagSeconds],
      'Events are counted too late or not at all.',
      'The partition that is furthest behind was counted to its end {{ $value | humanizeDuration }} ago. Nobody new is blocked there.',
    ),
    critical(
      'NoAggregator',
      'absent(%s)' % metric('partition_lag_seconds'),
      'No aggregator is running or scraped.',
      'Nothing is counted, and no verdict is issued. Enforcers keep the blocks that they have until these end.',
    ),
    critical(
      'NothingDurable',
      'time() - min(%s) > %d' % [metric('last_checkpoint_timestamp_seconds'), c.durableSeconds],
      'Checkpoints fail and counts are not durable.',
      'The last checkpoint of a partition is {{ $value | humanizeDuration }} old. A new owner would count all of that again.',
    ),
    critical(
      'PartitionFails',
      'sum by (partition) (%s) > %d' % [growth('partition_failures_total', [], c.failuresWindow), c.failures],
      'A partition fails and is taken over again and again.',
      'Partition {{ $labels.partition }} failed {{ $value | humanize }} times within %s. Its users are counted late.' % c.failuresWindow,
    ),
    critical(
      'EventsLost',
      'sum by (%s) (%s + %s) > 0' % [process, growth('records_lost_total', [], c.lostWindow), growth('records_unreadable_total', [], c.lostWindow)],
      'Records of events were lost before they were counted.',
      '%s skipped {{ $value | humanize }} records within %s: retention deleted them first, or they cannot be read.' % [who, c.lostWindow],
    ),
  ],

  local storing = [
    critical(
      'KafkaRefuses',
      'sum by (%s, reason) (%s) > 0' % [c.job, growth('kafka_errors_total', ['reason=~"auth|corrupt|cut"'], c.refusedWindow)],
      'Kafka refuses requests, or a log is damaged.',
      '%s: {{ $value | humanize }} errors of the kind {{ $labels.reason }} within %s.' % [job, c.refusedWindow],
    ),
    // Publishers, enforcers and strict limits: job and reason tell which.
    critical(
      'RedisRefuses',
      std.join(' or ', [
        'sum by (%s, reason) (%s) > 0' % [c.job, growth(m + '_errors_total', ['reason=~"auth|memory|tls|shards|old|replica"'], c.refusedWindow)]
        for m in ['publish', 'feed', 'strict']
      ]),
      'Redis refuses a program.',
      '%s: {{ $value | humanize }} refusals of the kind {{ $labels.reason }} within %s. New verdicts do not get through.' % [job, c.refusedWindow],
    ),
  ],

  local enforcing = [
    critical(
      'EnforcerBehind',
      'max by (%s) (%s) > %d' % [c.job, metric('blocklist_staleness_seconds'), c.stalenessSeconds],
      'An enforcer gets no new verdicts.',
      'The enforcer of %s that is furthest behind is so by {{ $value | humanizeDuration }}. It enforces only the verdicts that it has.' % job,
    ),
    critical(
      'NoEnforcer',
      'absent(%s) and on () sum(%s) > 0' % [metric('blocklist_staleness_seconds'), metric('verdicts_total', ['state="block"', 'mode="enforce"'])],
      'Users are blocked by rules, and no enforcer is running or scraped.',
      'Aggregators issue verdicts, and nothing that enforces them is known to Prometheus.',
    ),
  ],

  local strict = [
    critical(
      'StrictInDoubt',
      'time() - min(%s > 0) > %d' % [metric('strict_doubt_since_timestamp_seconds'), c.strictSeconds],
      'Strict limits of a partition have denied for more than a minute.',
      'For {{ $value | humanizeDuration }} Redis may not grant permits of strict rules in at least one partition.',
    ),
    critical(
      'PermitsInDoubt',
      'sum by (%s) (%s) > 0' % [c.job, growth('admits_total', ['result="in_doubt"'], c.refusedWindow)],
      'A decision server cannot get permits of strict limits.',
      '%s answered {{ $value | humanize }} requests without a permit within %s, as --on-doubt says.' % [job, c.refusedWindow],
    ),
  ],

  local programs = [
    warning(
      'ProgramDown',
      '%s == 0' % q.of('up', ['job=~"%s"' % c.jobs]),
      'A program of Tallygate is down.',
      '%s does not answer when it is scraped.' % who,
    ),
    warning(
      'ClockSkew',
      'abs(%(clock)s - timestamp(%(clock)s)) > %(seconds)d' % { clock: metric('clock_timestamp_seconds'), seconds: c.clockSeconds },
      'The clock of a program is wrong.',
      "%s differs from Prometheus' clock by {{ $value | humanizeDuration }}. Enforcers end blocks by their own clock." % who,
    ),
    warning(
      'RedisClock',
      'max by (%s, %s) (abs(%s)) > %d' % [c.job, c.instance, metric('strict_clock_ahead_seconds'), c.clockSeconds],
      "Redis' clock is wrong, or was.",
      "%s and the clock by which Redis counts strict limits are {{ $value | humanizeDuration }} apart. From a minute on, strict limits deny." % who,
    ),
    warning(
      'CertificateExpires',
      '%s - time() < %d' % [metric('certificate_expiry_timestamp_seconds'), c.certificateSeconds],
      'A certificate expires soon.',
      'The certificate of --{{ $labels.option }} at %s expires in {{ $value | humanizeDuration }}.' % who,
    ),
    warning(
      'NotifyFails',
      'sum by (receiver, reason) (%s) > 0' % growth('notify_failed_total', [], c.mistakeWindow),
      'Notifications do not arrive.',
      'The receiver {{ $labels.receiver }} did not take {{ $value | humanize }} of them within %s: {{ $labels.reason }}.' % c.mistakeWindow,
    ),
  ],

  local rules = [
    warning(
      'RulesBroken',
      'min by (%s) (%s) == 0' % [process, metric('rules_file_ok')],
      "An instance's rule file, or a file that it names, is broken.",
      '%s counts by older rules until the file is valid. A new instance would not become ready.' % who,
    ),
    warning(
      'RulesDiffer',
      'max(%s) > 0' % metric('rules_differ'),
      'Members of the group run different rules.',
      '{{ $value | humanize }} instances do not run the rules that the others run.',
    ),
    warning(
      'MembersDiffer',
      'max by (what) (%s) > 0' % metric('members_differ'),
      'Members of the group differ in what must be the same for all.',
      '{{ $value | humanize }} instances differ in {{ $labels.what }}. If it is redis, verdicts of some partitions reach no enforcer.',
    ),
    warning(
      'FuseBlown',
      'sum by (rule) (%s) > 0' % growth('fuses_blown_total', [], c.fuseWindow),
      'A rule wanted to block too many users, and was switched to shadow mode.',
      'The fuse of {{ $labels.rule }} blew in {{ $value | humanize }} partitions within %s. The rule blocks nobody there.' % c.fuseWindow,
    ),
    warning(
      'KillSwitch',
      'count by (%s) (%s == 0) > 0' % [c.job, metric('enforcement_enabled')],
      'A kill switch has been on for long.',
      'Of %s, {{ $value }} processes allow everything, whatever the rules say.' % job,
    ),
    warning(
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
      'Users do much more than a rule allows.',
      'Of the events that {{ $labels.rule }} counts, {{ $value | humanizePercentage }} are above its limit: somebody who is blocked is let in.',
    ),
    warning(
      'Unpermitted',
      'sum by (rule) (%s) > 0' % growth('unpermitted_total', [], c.refusedWindow),
      'A service acts under a strict rule without asking.',
      '{{ $value | humanize }} events of {{ $labels.rule }} within %s had no permit. Its limit may be exceeded.' % c.refusedWindow,
    ),
  ],

  local latency = [
    warning(
      'SlowFeed',
      'histogram_quantile(0.99, sum by (%s, le) (rate(%s[%s]))) > %g' % [c.job, metric('event_to_enforced_seconds_bucket'), c.rateWindow, c.slowFeedSeconds],
      'Blocks come late to where they are enforced.',
      'At %s one block of a hundred takes {{ $value | humanizeDuration }} or more after its event.' % job,
    ),
  ],

  local producers = [
    warning(
      'EventsDropped',
      'sum by (%s, reason) (%s) > 0' % [c.job, growth('emit_dropped_total', [], c.refusedWindow)],
      'A service drops events before they reach Kafka.',
      '%s dropped {{ $value | humanize }} events within %s: {{ $labels.reason }}. They are never counted.' % [job, c.refusedWindow],
    ),
    warning(
      'DeadLetters',
      'sum(%s) > 0' % growth('events_total', ['result="dead_letter"'], c.mistakeWindow),
      'Producers send malformed events.',
      '{{ $value | humanize }} records went to the dead-letter topic within %s. They are not counted.' % c.mistakeWindow,
    ),
    // Labels that the three metrics do not share tell which of them it is.
    warning(
      'ProducerMistake',
      'sum by (reason, what, name, client) (%s) > 0' % std.join(' or ', [
        growth(m, [], c.mistakeWindow)
        for m in ['event_suspects_total', 'vocabulary_mismatches_total', 'events_misplaced_total']
      ]),
      'Events look like a mistake of their producer.',
      |||
        {{ $value | humanize }} events within %s
        {{ if $labels.client }}of {{ $labels.client }} were sent to partitions that are not their uid's
        {{- else if $labels.what }}contradict the vocabulary: {{ $labels.what }} {{ $labels.name }}
        {{- else }}look wrong: {{ $labels.reason }}{{ end }}. Rules may not count them as meant.
      ||| % c.mistakeWindow,
    ),
  ],
}
