package emitcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/input"
	"github.com/tallygate/tallygate/pipeline/emit"
)

const (
	maxLines = 20        // malformed lines that are listed one by one
	lateness = time.Hour // the default max_lateness of aggregators
)

// reporter tells the user of problems on standard error, one line each.
type reporter struct {
	*input.Progress
	name    string
	bad     int
	old     bool
	failure string // the last one told

	seen   event.Suspects // so far
	warned map[string]bool
}

func newReporter(o *options, in *input.Input, out io.Writer) *reporter {
	total := in.Size
	if o.json || o.follow {
		total = 0
	}
	return &reporter{Progress: input.NewProgress(out, in.Name, total, true, in.Done), name: in.Name, warned: map[string]bool{}}
}

// finish removes the progress bar, and reports what was only counted.
func (r *reporter) finish() {
	if more := r.bad - maxLines; more > 0 {
		r.Line("%s: %d more malformed lines", r.name, more)
	}
	r.Finish()
}

func (r *reporter) skipped(line int, err error) {
	if r.bad++; r.bad <= maxLines {
		r.Line("%s:%d: %v", r.name, line, err)
	}
}

// age warns of the first event that is too old to be counted.
func (r *reporter) age(line int, t time.Time) {
	if r.old || time.Since(t) <= lateness {
		return
	}
	r.old = true
	r.Line("%s:%d: warning: this event is of %s. Aggregators do not count events older than max_lateness (%v by default); --now sends events without their time",
		r.name, line, t.Format(time.RFC3339), lateness)
}

// suspects warns of the first event of each kind that looks like a mistake.
func (r *reporter) suspects(line int, seen event.Suspects) {
	if seen == r.seen {
		return
	}
	for reason := range seen.Minus(r.seen).ByReason() {
		if !r.warned[reason] {
			r.warned[reason] = true
			r.Line("%s:%d: warning: this looks like a mistake: %s", r.name, line, event.SuspectAdvice(reason))
		}
	}
	r.seen = seen
}

// stalled reports why Kafka acknowledges nothing, each reason once.
func (r *reporter) stalled(err error) {
	if text := err.Error(); text != r.failure {
		r.failure = text
		hint := ""
		if errors.Is(err, kafka.UnknownTopicOrPartition) {
			hint = " (the aggregator creates its topics when it starts)"
		}
		r.Line("waiting for Kafka: %v%s", err, hint)
	}
}

// drop is called for events that are lost: Kafka has refused them, or they are left at the end.
func (r *reporter) drop(d emit.Drop) {
	if d.Reason == emit.Refused {
		r.Line("Kafka refuses %d events: %v", d.Events, d.Err)
	}
}

// summary is the output of --json.
type summary struct {
	Events  uint64  `json:"events"`  // acknowledged by Kafka
	Skipped int     `json:"skipped"` // malformed lines
	Dropped uint64  `json:"dropped"` // events that did not reach Kafka
	Seconds float64 `json:"seconds"`
	Rate    float64 `json:"events_per_second"`
}

// number is 1 event, or 5 events.
func number[N int | uint64](n N, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// summarize prints the summary. It returns an error if events were refused, or no line was valid.
func summarize(out io.Writer, o *options, stats emit.Stats, skipped int, took time.Duration) error {
	s := summary{
		Events: stats.Emitted, Skipped: skipped,
		Dropped: stats.Dropped[emit.Refused] + stats.Dropped[emit.Undelivered],
		Seconds: took.Seconds(), Rate: float64(stats.Emitted) / took.Seconds(),
	}
	var err error
	if o.json {
		err = json.NewEncoder(out).Encode(s)
	} else {
		_, err = fmt.Fprintf(out, "%s sent in %v (%.0f/s), %s skipped, %s dropped\n",
			number(s.Events, "event"), took.Round(time.Millisecond), s.Rate, number(s.Skipped, "line"), number(s.Dropped, "event"))
	}
	switch {
	case err != nil:
		return fmt.Errorf("write the summary: %w", err)
	case stats.Dropped[emit.Refused] > 0:
		return fmt.Errorf("kafka refused %d events", stats.Dropped[emit.Refused])
	case skipped > 0 && stats.Emitted == 0 && s.Dropped == 0:
		return errors.New("no valid event: check --format; --help shows the formats")
	}
	return nil
}
