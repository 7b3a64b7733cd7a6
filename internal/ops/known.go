package ops

import (
	"slices"
	"strings"
)

// bothPrograms are the options of aggregator and enforcer, sorted. A test compares it with what
// their helps say.
var bothPrograms = strings.Fields(`
accept-new-topic admit-proxies advertise allow-status answers api-header attr-prefix broker-time
checkpoint-every drain-delay emit-admitted enforcers grpc-listen hot-key-rate hot-key-share in-doubt
in-doubt-rules instance-id instances ip-header kafka kafka-ca kafka-cert kafka-key
kafka-password-file kafka-sasl kafka-tls kafka-user listen log-format log-hot-keys log-level
max-connections max-staleness max-wait max-waiting max-waiting-per-key method-header metrics-listen
no-blocklist no-presence off-file oidc-audience oidc-ca oidc-groups-claim oidc-issuer
oidc-name-claim on-doubt on-doubt-of open-api partitions path-header peer-ca prefix publish-only
redis redis-ca redis-cert redis-cluster redis-db redis-key redis-master redis-password-file
redis-sentinel-password-file redis-sentinel-user redis-tls redis-user repeated-headers replication
require-dimensions rls-entries rules session-timeout shards snapshot tls-cert tls-client-ca tls-key
tokens trace-otlp trace-sample trusted-proxies uid-header
`)

// KnownOption reports whether aggregator or enforcer has an option of that name: then it may be in
// any config file.
func KnownOption(name string) bool {
	_, known := slices.BinarySearch(bothPrograms, name)
	return known
}
