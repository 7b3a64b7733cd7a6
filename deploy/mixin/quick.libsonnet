// The same alerts for tests that break something and look: nothing waits, and what may be late is so
// after seconds.
(import 'mixin.libsonnet') + {
  _config+:: {
    local waits = super.waits,
    lagSeconds: 4,
    durableSeconds: 4,
    stalenessSeconds: 4,
    strictSeconds: 4,
    refusedWindow: '10s',
    failuresWindow: '20s',
    mistakeWindow: '10s',
    rateWindow: '10s',
    fuseWindow: '20s',
    lostWindow: '20s',
    waits: { [name]: '0s' for name in std.objectFields(waits) },
  },
}
