package ops

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// WatchCertificates registers a metric of when the certificates named by options expire, by option.
// It reads the files at each scrape, so that renewed ones show. A certificate that cannot be read
// shows as expired, at 0.
func (o *Options) WatchCertificates(reg prometheus.Registerer) error {
	files := map[string]string{}
	o.VisitAll(func(f *flag.Flag) {
		if path := f.Value.String(); strings.HasSuffix(f.Name, "-cert") && path != "" {
			files[f.Name] = path
		}
	})
	return reg.Register(&certificates{
		files:   files,
		expires: prometheus.NewDesc("tallygate_certificate_expiry_timestamp_seconds", "Expiry time of the certificate of an option; 0 if its file cannot be read.", []string{"option"}, nil),
	})
}

type certificates struct {
	files   map[string]string // by option
	expires *prometheus.Desc
}

func (c *certificates) Describe(ch chan<- *prometheus.Desc) { ch <- c.expires }

func (c *certificates) Collect(ch chan<- prometheus.Metric) {
	for option, path := range c.files {
		at := 0.0
		if cert, err := readCertificate(path); err == nil {
			at = float64(cert.NotAfter.Unix())
		}
		ch <- prometheus.MustNewConstMetric(c.expires, prometheus.GaugeValue, at, option)
	}
}

// readCertificate reads a PEM file's first certificate, which is the one that is shown; those that
// signed it follow.
func readCertificate(path string) (*x509.Certificate, error) {
	rest, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, errors.New("no certificate in " + path)
		}
		if block.Type == "CERTIFICATE" {
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("read the certificate in %s: %w", path, err)
			}
			return cert, nil
		}
	}
}
