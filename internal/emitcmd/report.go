package emitcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/internal/input"
	"github.com/tallygate/tallygate/pipeline/emit"
)

const (
	maxLines = 20        // bad lines that are told one by one
	lateness = time.Hour // the aggregator's max_lateness, unless it was told another
)

// reporter tells the user what happens, on standard error: one line each.
type reporter struct {
	*input.Progress
	name    string
	bad     int
	old     bool
	trouble string
}

func newReporter(o *options, in *input.Input, out io.Writer) *reporter {
	total := in.Size
	if o.json || o.follow {
		total = 0
	}
	return &reporter{Progress: input.NewProgress(out, in.Name, total, true, in.Done), name: in.Name}
}

// finish takes the bar away and tells what was only counted.
func (r *reporter) finish() {
	if more := r.bad - maxLines; more > 0 {
		r.Line("%s: %d more lines are no events", r.name, more)
	}
	r.Finish()
}

func (r *reporter) skipped(line int, err error) {
	if r.bad++; r.bad <= maxLines {
		r.Line("%s:%d: %v", r.name, line, err)
	}
}

// age warns of the first event that an aggregator will not count.
func (r *reporter) age(line int, t time.Time) {
	if r.old || time.Since(t) <= lateness {
		return
	}
	r.old = true
	r.Line("%s:%d: warning: this event is of %s. An aggregator counts no event that is older than its max_lateness (%v by default) when it arrives; --now sends events without their time",
		r.name, line, t.Format(time.RFC3339), lateness)
}

// stalled tells of each trouble with Kafka once.
func (r *reporter) stalled(err error) {
	if text := err.Error(); text != r.trouble {
		r.trouble = text
		hint := ""
		if errors.Is(err, kafka.UnknownTopicOrPartition) {
			hint = " (the aggregator creates its topics when it starts)"
		}
		r.Line("waiting for Kafka: %v%s", err, hint)
	}
}

// drop is called for events that are lost: only by Kafka's refusal, or at the end.
func (r *reporter) drop(d emit.Drop) {
	if d.Reason == emit.Refused {
		r.Line("Kafka refuses %d events: %v", d.Events, d.Err)
	}
}

// summary is what --json prints.
type summary struct {
	Events  uint64  `json:"events"`  // that Kafka acknowledged
	Skipped int     `json:"skipped"` // lines that are no events
	Dropped uint64  `json:"dropped"` // events that are not in Kafka
	Seconds float64 `json:"seconds"`
	Rate    float64 `json:"events_per_second"`
}

// summarize prints the last line. Its error is what the numbers say is wrong.
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
		_, err = fmt.Fprintf(out, "%d events sent in %v (%.0f/s), %d lines skipped, %d events dropped\n",
			s.Events, took.Round(time.Millisecond), s.Rate, s.Skipped, s.Dropped)
	}
	switch {
	case err != nil:
		return fmt.Errorf("write the summary: %w", err)
	case stats.Dropped[emit.Refused] > 0:
		return fmt.Errorf("kafka refused %d events", stats.Dropped[emit.Refused])
	case skipped > 0 && stats.Emitted == 0 && s.Dropped == 0:
		return errors.New("no line is an event: is --format right? --help shows the formats")
	}
	return nil
}
