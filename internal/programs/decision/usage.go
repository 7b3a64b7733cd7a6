package decision

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/internal/base/logonce"
	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
)

// usageReports tells of reports of usage: each in a metric, and wrong ones in the log, too. A proxy is answered OK
// whatever it sends, so nothing else shows that a budget is never used.
type usageReports struct {
	*prometheus.CounterVec
	log   *slog.Logger
	lines map[envoylimit.Reported]*logonce.Line
}

// mends advises on reports of which there is no event.
var mends = map[envoylimit.Reported]string{
	envoylimit.NoAPI:    "send an entry `api`, or `method` and `path`, with the descriptor that reports",
	envoylimit.NoKey:    "send an entry `uid`, or another dimension, with the descriptor that reports",
	envoylimit.Negative: "emit an event that names what it takes back: a report only adds",
	envoylimit.TooLarge: "look at hits_addend: it is more than a cost can be",
}

func newReports() *usageReports {
	r := &usageReports{lines: map[envoylimit.Reported]*logonce.Line{}, log: slog.Default()}
	for result := range mends {
		r.lines[result] = new(logonce.Line)
	}
	r.CounterVec = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tallygate_usage_reports_total", Help: "Reports of usage by Envoy's rate limit protocol, by what became of them.",
	}, []string{"result"})
	return r
}

// reported counts a report.
func (r *usageReports) reported(result envoylimit.Reported) {
	r.WithLabelValues(string(result)).Inc()
	if line := r.lines[result]; line != nil {
		if leftOut, due := line.Due(); due {
			r.log.Warn("a report of usage counts nowhere", "result", string(result), "advice", mends[result], "left_out", leftOut)
		}
	}
}

// register registers the counter, from the start with all results: one that is missing cannot be told from one that
// never came.
func (r *usageReports) register(reg prometheus.Registerer, on bool) error {
	if !on {
		return nil
	}
	for _, result := range envoylimit.AllReported() {
		r.WithLabelValues(string(result))
	}
	return reg.Register(r)
}
