package ops_test

import (
	"encoding/pem"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// A certificate's end shows, also of one that was renewed, and one that is gone shows as expired.
func TestWhenCertificatesExpire(t *testing.T) {
	s := httptest.NewTLSServer(nil)
	s.Close()
	file := filepath.Join(t.TempDir(), "cert.pem")
	o := ops.NewOptions("test", "", io.Discard, testrun.NoEnv)
	o.ClientTLS("kafka")
	o.ServerTLS()
	if err := o.Parse([]string{"--tls-cert", file}); err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	if err := o.WatchCertificates(reg); err != nil {
		t.Fatal(err)
	}
	expires := func() float64 {
		all, err := reg.Gather()
		if err != nil || len(all) != 1 || len(all[0].GetMetric()) != 1 || all[0].GetName() != "tallygate_certificate_expiry_timestamp_seconds" {
			t.Fatalf("%v, %v", all, err)
		}
		m := all[0].GetMetric()[0]
		if l := m.GetLabel(); len(l) != 1 || l[0].GetName() != "option" || l[0].GetValue() != "tls-cert" {
			t.Errorf("labels %v", l)
		}
		return m.GetGauge().GetValue()
	}
	if at := expires(); at != 0 {
		t.Errorf("one that is not there expires at %v", at)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if at, want := expires(), float64(s.Certificate().NotAfter.Unix()); at != want {
		t.Errorf("it expires at %v, not %v", at, want)
	}
}
