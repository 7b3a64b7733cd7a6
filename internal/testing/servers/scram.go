package servers

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/IBM/sarama"
)

// SCRAMKafka is a broker of the test's own that asks for a password (SCRAM-SHA-512) on one more
// listener.
type SCRAMKafka struct {
	*KafkaProc
	Secured string // host:port of that listener
}

// StartSCRAMKafka starts one, without users yet.
func StartSCRAMKafka(t testing.TB) *SCRAMKafka {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	p := StartKafka(t, map[string]string{
		"listener.security.protocol.map":                       "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT",
		"listener.name.secured.sasl.enabled.mechanisms":        "SCRAM-SHA-512",
		"listener.name.secured.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
	}, "KAFKA_LISTENERS=SECURED://"+addr, "KAFKA_ADVERTISED=SECURED://"+addr)
	return &SCRAMKafka{p, addr}
}

// Password sets the password of a user. Existing connections stay.
func (k *SCRAMKafka) Password(user, password string) {
	k.t.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	admin, err := sarama.NewClusterAdmin([]string{k.Addr()}, cfg)
	if err != nil {
		k.t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	results, err := admin.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{{
		Name: user, Mechanism: sarama.SCRAM_MECHANISM_SHA_512, Iterations: 4096, Salt: []byte("salt for " + user), Password: []byte(password),
	}})
	var refused []string
	for _, r := range results {
		if r.ErrorCode != sarama.ErrNoError {
			refused = append(refused, fmt.Sprint(r.ErrorCode))
		}
	}
	if err != nil || len(refused) > 0 {
		k.t.Fatalf("give %s a password: %v %s", user, err, strings.Join(refused, ", "))
	}
}
