// What an installation may want otherwise: import mixin.libsonnet and change it, as in
//
//   (import 'tallygate-mixin/mixin.libsonnet') + { _config+:: { selector: 'cluster="shop"', slowFeedSeconds: 0.5 } }
local findings = import 'findings.json';
{
  _config+:: {
    // Matchers that every query gets, such as 'cluster="shop"'. Without any, all of Prometheus is one installation.
    selector: '',
    // Jobs whose targets are Tallygate's programs, as a regular expression of Prometheus. Services that
    // link the enforcer are not among them: whether they run is for their own alerts.
    jobs: '(.*[-/])?(tallygate.*|aggregator|enforcer|console|notify)',
    // Labels of targets: what kind of program, and which process of it.
    job: 'job',
    instance: 'instance',
    // Where each alert has a section with its name.
    runbooks: 'https://github.com/tallygate/tallygate/blob/main/docs/runbooks.md',
    // Values of the label severity: what wakes somebody up, and what can wait for the morning.
    critical: 'critical',
    warning: 'warning',

    // How long something may be behind, in seconds: as the console and tallygate doctor judge it.
    lagSeconds: findings.CountingStopped.seconds,
    durableSeconds: findings.NothingDurable.seconds,
    stalenessSeconds: findings.EnforcerBehind.seconds,
    strictSeconds: findings.StrictInDoubt.seconds,
    slowFeedSeconds: findings.SlowFeed.seconds,
    clockSeconds: findings.ClockSkew.seconds,
    certificateSeconds: findings.CertificateExpires.seconds,
    // The share of a rule's events that may be above its limit.
    overshootShare: 0.1,
    // How many times a partition may fail within failuresWindow.
    failures: 2,

    // What a counter's growth is looked for in.
    refusedWindow: '5m',
    failuresWindow: '10m',
    mistakeWindow: '10m',
    rateWindow: '5m',
    fuseWindow: '1h',
    lostWindow: '1h',

    // How long a condition holds before its alert fires; '0s' is at once.
    waits: {
      CountingStopped: '30s',
      NoAggregator: '1m',
      NothingDurable: '0s',
      KafkaRefuses: '0s',
      PartitionFails: '0s',
      RedisRefuses: '0s',
      EnforcerBehind: '1m',
      NoEnforcer: '2m',
      StrictInDoubt: '0s',
      PermitsInDoubt: '1m',
      EventsLost: '0s',
      ProgramDown: '2m',
      RulesBroken: '2m',
      RulesDiffer: '10m',
      MembersDiffer: '5m',
      KillSwitch: '10m',
      FuseBlown: '0s',
      ClockSkew: '2m',
      RedisClock: '2m',
      // Longer than rateWindow, in which one bad minute shows.
      Overshoot: '10m',
      SlowFeed: '10m',
      Unpermitted: '5m',
      NotifyFails: '10m',
      EventsDropped: '2m',
      DeadLetters: '10m',
      ProducerMistake: '10m',
      CertificateExpires: '0s',
    },

    dashboard: {
      uid: 'tallygate',
      title: 'Tallygate',
      tags: ['tallygate'],
      refresh: '10s',
      from: 'now-1h',
    },
  },
}
