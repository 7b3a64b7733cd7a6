package dev

import (
	"net"
	"testing"

	"github.com/tallygate/tallygate/internal/run/kafkaconn"
)

// listenerAt is at an address that nobody listens on.
type listenerAt struct {
	net.Listener
	port int
}

func (l listenerAt) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: l.port} }

// Commands in another shell ask at the usual addresses: where dev is elsewhere, it says what they need, and why.
func TestExports(t *testing.T) {
	const kafka, redis = "127.0.0.1:9092", "127.0.0.1:6379"
	both := []string{embeddedKafka, embeddedRedis}
	for name, c := range map[string]struct {
		listen, prefix, kafka, redis string
		api                          int
		embedded                     []string
		want                         string
	}{
		"all is where it usually is": {usualListen, usualPrefix, kafka, redis, 8081, both, ""},
		"another Kafka runs here": {usualListen, usualPrefix, "127.0.0.1:4001", redis, 8081, both,
			"Another program has port 9092. Commands in another shell find this one after:\n  export TALLYGATE_KAFKA=127.0.0.1:4001\n\n"},
		"all is taken": {usualListen, usualPrefix, "127.0.0.1:4001", "127.0.0.1:4002", 4003, both,
			"Another program has ports 9092, 6379, 8081. Commands in another shell find this one after:\n" +
				"  export TALLYGATE_KAFKA=127.0.0.1:4001\n  export TALLYGATE_REDIS=127.0.0.1:4002\n  export TALLYGATE_AGGREGATOR=127.0.0.1:4003\n\n"},
		"any ports, and another prefix": {"127.0.0.1:0", "mine", "127.0.0.1:4001", "127.0.0.1:4002", 4003, both,
			"Commands in another shell find this one after:\n" +
				"  export TALLYGATE_KAFKA=127.0.0.1:4001\n  export TALLYGATE_REDIS=127.0.0.1:4002\n  export TALLYGATE_AGGREGATOR=127.0.0.1:4003\n  export TALLYGATE_PREFIX=mine\n\n"},
		"a Kafka of one's own": {"127.0.0.1:8090", usualPrefix, "kafka:9092", redis, 8091, []string{embeddedRedis},
			"Commands in another shell find this one after:\n  export TALLYGATE_KAFKA=kafka:9092\n  export TALLYGATE_AGGREGATOR=127.0.0.1:8091\n\n"},
	} {
		s := &stack{settings: &settings{listen: c.listen, prefix: c.prefix, rds: c.redis}, kafka: &kafkaconn.Kafka{Brokers: []string{c.kafka}},
			api: listenerAt{port: c.api}, embedded: c.embedded}
		if got := s.exports(); got != c.want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, c.want)
		}
	}
}
