package ops_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tallygate/tallygate/internal/ops"
)

// authority signs a certificate for 127.0.0.1, and is trusted by its own.
func authority(t *testing.T) (ca, cert, key []byte) {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return cert, cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// Certificates of both sides are replaced while the program runs: what it trusts, and what it shows.
func TestKafkaCertificatesAreReadAtEachConnection(t *testing.T) {
	var serving atomic.Pointer[tls.Config]
	rotate := func(ca, key []byte) {
		pair, err := tls.X509KeyPair(ca, key)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca)
		serving.Store(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool})
	}
	ca, cert, key := authority(t)
	rotate(ca, key)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.TLS(&tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return serving.Load(), nil },
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	caFile, certFile, keyFile := write(t, "ca.pem", string(ca)), write(t, "cert.pem", string(cert)), write(t, "key.pem", string(key))
	k, err := buildKafka(t, nil, "--kafka", cluster.ListenAddrs()[0], "--kafka-tls", "--kafka-ca", caFile, "--kafka-cert", certFile, "--kafka-key", keyFile)
	if err != nil {
		t.Fatal(err)
	}
	connect := func() error {
		conn, err := k.DialContext(t.Context(), "tcp", k.Brokers[0])
		if err != nil {
			return err
		}
		return conn.Close()
	}
	if err := connect(); err != nil {
		t.Fatal(err)
	}
	refused := func(what string) {
		t.Helper()
		if err := connect(); err == nil || !isRefusal(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	newCA, newCert, newKey := authority(t)
	rotate(newCA, newKey)
	refused("a broker that we don't trust")
	put := func(path string, text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(caFile, newCA)
	refused("a broker that does not take our certificate")
	put(certFile, newCert)
	refused("a certificate whose key is another's")
	put(keyFile, newKey)
	if err := connect(); err != nil {
		t.Errorf("after all was replaced: %v", err)
	}
	transport, err := k.Transport()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	client := &kafka.Client{Addr: kafka.TCP(k.Brokers...), Transport: transport}
	if _, err := client.Metadata(t.Context(), &kafka.MetadataRequest{}); err != nil {
		t.Errorf("kafka-go: %v", err)
	}
}

func isRefusal(err error) bool {
	_, ok := errors.AsType[*ops.Refusal](err)
	return ok
}

// What a program says while it is refused: at once, then each minute, and when that is over. It is ready for a grace, and when it is let in.
func TestRefusalsAreSaidEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a ops.Access
		var mu sync.Mutex
		var said []string
		log := slog.New(slog.NewTextHandler(lines(func(line string) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, line)
		}), nil))
		count := func(part string) (n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, line := range said {
				if strings.Contains(line, part) {
					n++
				}
			}
			return n
		}
		var let atomic.Bool
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.Run(ctx, "Kafka", log, func(context.Context) error {
				if let.Load() {
					return nil
				}
				return &ops.Refusal{Err: errors.New("wrong password")}
			})
		}()
		a.Note(errors.New("connection refused")) // the network's business
		synctest.Wait()
		if len(said) != 0 || a.Ready("Kafka") != nil {
			t.Errorf("a network's error: %q, %v", said, a.Ready("Kafka"))
		}
		a.Note(&ops.Refusal{Err: errors.New("wrong password")})
		synctest.Wait()
		if count("Kafka refuses us") != 1 || a.Ready("Kafka") != nil {
			t.Errorf("at once: %q, %v", said, a.Ready("Kafka"))
		}
		time.Sleep(10*time.Minute + time.Second)
		if err := a.Ready("Kafka"); count("Kafka refuses us") != 11 || err == nil || !strings.Contains(err.Error(), "wrong password") {
			t.Errorf("after ten minutes: said %d times; %v", count("Kafka refuses us"), err)
		}
		let.Store(true)
		time.Sleep(3 * time.Second)
		if count("lets us in again") != 1 || a.Ready("Kafka") != nil {
			t.Errorf("let in: %q, %v", said, a.Ready("Kafka"))
		}
		stop()
		<-done
	})
}

type lines func(string)

func (l lines) Write(b []byte) (int, error) { l(string(b)); return len(b), nil }

// Each mechanism lets in by the password that the file has at that moment, and a wrong one is told from a network's trouble.
func TestKafkaPasswordsAreReadAtEachConnection(t *testing.T) {
	for mechanism, name := range map[string]string{"plain": "PLAIN", "scram-sha-256": "SCRAM-SHA-256", "scram-sha-512": "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(name, "u", "right"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(cluster.Close)
			file := write(t, "password", "mistaken\n")
			k, err := buildKafka(t, nil, "--kafka", cluster.ListenAddrs()[0], "--kafka-sasl", mechanism, "--kafka-user", "u", "--kafka-password-file", file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := k.DialContext(t.Context(), "tcp", k.Brokers[0]); !isRefusal(err) || strings.Contains(err.Error(), "mistaken") {
				t.Errorf("a wrong password: %v", err)
			}
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if _, err := k.DialContext(t.Context(), "tcp", k.Brokers[0]); !isRefusal(err) {
				t.Errorf("no file: %v", err)
			}
			if err := os.WriteFile(file, []byte("right\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			s := sarama.NewConfig()
			k.Sarama(s)
			client, err := sarama.NewClient(k.Brokers, s)
			if err != nil {
				t.Fatalf("sarama: %v", err)
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			transport, _ := k.Transport()
			defer transport.CloseIdleConnections()
			if _, err := (&kafka.Client{Addr: kafka.TCP(k.Brokers...), Transport: transport}).Metadata(t.Context(), &kafka.MetadataRequest{}); err != nil {
				t.Errorf("kafka-go: %v", err)
			}
			m, err := k.Mechanism()
			if err != nil {
				t.Fatal(err)
			}
			emitters := &kafka.Transport{SASL: m}
			defer emitters.CloseIdleConnections()
			if _, err := (&kafka.Client{Addr: kafka.TCP(k.Brokers...), Transport: emitters}).Metadata(t.Context(), &kafka.MetadataRequest{}); err != nil {
				t.Errorf("an emitter's: %v", err)
			}
			cluster.Close()
			if _, err := k.DialContext(t.Context(), "tcp", k.Brokers[0]); err == nil || isRefusal(err) {
				t.Errorf("a broker that is away: %v", err)
			}
		})
	}
}
