(import 'config.libsonnet') + (import 'alerts.libsonnet') + (import 'dashboard.libsonnet')
