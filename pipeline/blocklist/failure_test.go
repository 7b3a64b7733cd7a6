package blocklist

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
)

// selfSigned returns a certificate for 127.0.0.1, and a pool that trusts it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// withoutTLS returns the address of a server that answers whatever comes in plain text.
func withoutTLS(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = conn.Write([]byte("-ERR unknown command\r\n"))
			_ = conn.Close()
		}
	})
	return l.Addr().String()
}

// TestErrorsOfTLS was counted as a Redis that is unreachable, and operators looked at the
// network.
func TestErrorsOfTLS(t *testing.T) {
	certificate, pool := selfSigned(t)
	server := func(c *tls.Config) string {
		s := miniredis.NewMiniRedis()
		if err := s.StartTLS(c); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s.Addr()
	}
	trusted := &tls.Config{RootCAs: pool}
	for about, c := range map[string]struct {
		addr   string
		client *tls.Config
		want   ErrorKind
	}{
		"the certificate is not trusted": {server(&tls.Config{Certificates: []tls.Certificate{certificate}}), &tls.Config{}, ErrorTLS},
		"it is for another name":         {server(&tls.Config{Certificates: []tls.Certificate{certificate}}), &tls.Config{RootCAs: pool, ServerName: "redis.example"}, ErrorTLS},
		"it wants one of ours":           {server(&tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}), trusted, ErrorTLS},
		"it has no TLS":                  {withoutTLS(t), trusted, ErrorTLS},
		"no server":                      {servers.FreeAddr(t), trusted, ErrorAway},
	} {
		t.Run(about, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: c.addr, TLSConfig: c.client, MaxRetries: -1, MaintNotificationsConfig: rig.NoNotices})
			t.Cleanup(func() { _ = client.Close() })
			log := &testrun.Output{}
			feed, _ := startFeed(t, client, rig.NewMemory(), func(cfg *FeedConfig) { cfg.Logger = log.Logger() })
			testrun.Eventually(t, "an error is counted", func() bool { return len(feed.Stats().Errors) > 0 })
			if s := feed.Stats(); s.Errors[c.want] == 0 || len(s.Errors) != 1 {
				t.Errorf("counted as %v (%v), want %s", s.Errors, s.LastError, c.want)
			}
			if c.want == ErrorTLS != log.Has("check the certificates") {
				t.Errorf("the log: %s", log)
			}
		})
	}
}
