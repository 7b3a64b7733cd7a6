package emit_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// testTLS returns a server's and a client's side of a certificate for 127.0.0.1.
func testTLS(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return &tls.Config{Certificates: s.TLS.Certificates}, &tls.Config{RootCAs: roots}
}

func TestTLSAndSASL(t *testing.T) {
	server, client := testTLS(t)
	sha := func(a scram.Algorithm) func(string) (sasl.Mechanism, error) {
		return func(password string) (sasl.Mechanism, error) { return scram.Mechanism(a, "app", password) }
	}
	for name, mechanism := range map[string]func(password string) (sasl.Mechanism, error){
		"PLAIN": func(password string) (sasl.Mechanism, error) {
			return plain.Mechanism{Username: "app", Password: password}, nil
		},
		"SCRAM-SHA-256": sha(scram.SHA256),
		"SCRAM-SHA-512": sha(scram.SHA512),
	} {
		t.Run(name, func(t *testing.T) {
			c, p := fake(t, 1, kfake.TLS(server), kfake.EnableSASL(), kfake.Superuser(name, "app", "secret"))
			with := func(password string) *emit.Emitter {
				m, err := mechanism(password)
				if err != nil {
					t.Fatal(err)
				}
				return start(t, p, func(c *emit.Config) { c.TLS, c.SASL = client, m })
			}

			e := with("secret")
			e.Emit(numbered("u1", 0))
			closeNow(t, e)
			if got := c.PartitionInfo(topic, 0).HighWatermark; got != 1 {
				t.Errorf("%d records", got)
			}

			e = with("mistyped")
			e.Emit(numbered("u1", 0))
			testrun.Eventually(t, "the trouble shows", func() bool { return e.Stats().LastError != nil })
			if err := e.Stats().LastError; strings.Contains(err.Error(), "mistyped") {
				t.Errorf("the error shows the password: %v", err)
			}
			if e.Stats().Queued != 1 {
				t.Error("dropped, though the password may be fixed")
			}
		})
	}
}
