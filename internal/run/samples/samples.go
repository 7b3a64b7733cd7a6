// Package samples reads metrics for a program's status.
package samples

import (
	"fmt"
	"math"
	"net/url"
	"regexp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/api"
)

// maxPrefixes bounds what a request may ask for.
const maxPrefixes = 50

var aPrefix = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]{0,127}$`)

// Prefixes reads the parameters of a request for a status: metrics, which names begin with one of its
// prefixes, and no other.
func Prefixes(q url.Values) (prefixes []string, err error) {
	for name, values := range q {
		if name != "metrics" || len(values) != 1 {
			return nil, fmt.Errorf("unknown parameter %.50q, or given twice: there is metrics=PREFIX,…", name)
		}
		prefixes = strings.Split(values[0], ",")
		if len(prefixes) > maxPrefixes {
			return nil, fmt.Errorf("metrics has %d prefixes, at most %d", len(prefixes), maxPrefixes)
		}
		for _, p := range prefixes {
			if !aPrefix.MatchString(p) {
				return nil, fmt.Errorf("metrics=%.50q: want beginnings of metrics' names, with commas between them", p)
			}
		}
	}
	return prefixes, nil
}

// Gather reads the metrics whose names begin with one of the prefixes. What a collector cannot tell now is left
// out, as are numbers that JSON does not have.
func Gather(from prometheus.Gatherer, prefixes []string) map[string][]api.Sample {
	all := map[string][]api.Sample{}
	families, _ := from.Gather() // those that could be gathered come beside an error
	for _, f := range families {
		if !hasPrefix(f.GetName(), prefixes) {
			continue
		}
		samples := []api.Sample{}
		for _, m := range f.GetMetric() {
			s := api.Sample{Value: m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()}
			for _, l := range m.GetLabel() {
				if s.Labels == nil {
					s.Labels = map[string]string{}
				}
				s.Labels[l.GetName()] = l.GetValue()
			}
			if h := m.GetHistogram(); h != nil {
				s.Sum, s.Count = h.GetSampleSum(), h.GetSampleCount()
				for _, b := range h.GetBucket() {
					if !math.IsInf(b.GetUpperBound(), 0) {
						s.Buckets = append(s.Buckets, api.Bucket{Le: b.GetUpperBound(), Count: b.GetCumulativeCount()})
					}
				}
			}
			if sum := m.GetSummary(); sum != nil {
				s.Sum, s.Count = sum.GetSampleSum(), sum.GetSampleCount()
			}
			if finite(s.Value) && finite(s.Sum) {
				samples = append(samples, s)
			}
		}
		all[f.GetName()] = samples
	}
	return all
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func hasPrefix(name string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
