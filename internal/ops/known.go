package ops

import (
	"slices"
	"strings"
)

// allPrograms are the options of aggregator, enforcer, and of tallygate console, notify and doctor, sorted. A
// test compares it with what their helps say.
var allPrograms = strings.Fields(`
accept-new-topic acls admit-proxies advertise aggregator allow-status answers api-header attr-prefix
broker-time ca cert check checkpoint-every drain-delay dry-run emit-admitted emit-denied
enforcer-token-file enforcers external-url forward-whole grpc-listen hot-key-rate hot-key-share in-doubt in-doubt-rules instance-id
instances ip-header json kafka kafka-ca kafka-cert kafka-key kafka-password-file kafka-sasl
kafka-tls kafka-user key listen log-format log-hot-keys log-level max-connections max-staleness
max-wait max-waiting max-waiting-per-key method-header metrics-listen no-blocklist no-presence
no-write notify off-file oidc-audience oidc-ca oidc-client-id oidc-client-secret-file
oidc-groups-claim oidc-issuer oidc-name-claim oidc-scopes on-doubt on-doubt-of open-api partitions
path-header peer-ca plain-dimensions prefix principal publish-only redis redis-ca redis-cert
redis-cluster redis-db redis-key redis-master redis-password-file redis-sentinel-password-file
redis-sentinel-user redis-tls redis-user repeated-headers replication require-dimensions rls-entries
rules session-key-file session-timeout shards snapshot test ticket-pattern timeout tls-cert
tls-client-ca tls-key token-file tokens trace-otlp trace-sample trusted-proxies uid-header
`)

// KnownOption reports whether a program that runs all the time, or the doctor, has an option of that name: then
// it may be in any config file.
func KnownOption(name string) bool {
	_, known := slices.BinarySearch(allPrograms, name)
	return known
}
