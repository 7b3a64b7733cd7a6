package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/deadletter"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/tools/input"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// sendTimeout bounds Kafka's acknowledgement of an event.
const sendTimeout = 30 * time.Second

// resend is one run of `tallygate dead-letters --send`.
type resend struct {
	to             letterSender
	now            bool
	stdout, stderr io.Writer
	json           bool

	name  string // of the file
	lines map[deadletter.Place]int
	sum   resent
}

// letterSender sends the letters of a file, and reports each to resend.
type letterSender interface {
	// letter sends the n-th line, whose content is l. An error ends the run.
	letter(ctx context.Context, n int, line []byte, l *deadletter.Letter) error

	// finish returns when everything has been sent.
	finish(ctx context.Context) error
}

// resent is the summary, as --json has it.
type resent struct {
	Records int `json:"records"` // with at least one event sent
	Events  int `json:"events"`
	Refused int `json:"refused"` // lines that were not sent
	Repeats int `json:"repeats"` // lines whose record an earlier line has sent
	Dropped int `json:"dropped"` // events that Kafka did not accept
}

func (r *resend) file(ctx context.Context, name string, stdin io.Reader) error {
	in, err := input.Open(ctx, name, stdin)
	if err != nil {
		return errors.Join(err, r.to.finish(ctx))
	}
	defer in.Close()
	r.name, r.lines = name, map[deadletter.Place]int{}
	readErr := r.copy(ctx, in)
	finishErr := r.to.finish(ctx)
	if err := errors.Join(readErr, finishErr, r.summary()); err != nil {
		return err
	}
	if r.sum.Refused > 0 {
		return fmt.Errorf("%s not sent", plural(r.sum.Refused, "line"))
	}
	return nil
}

// copy reads letters, one a line, until the input ends or the run is interrupted. A line that is no letter is refused
// by itself: the others are sent.
func (r *resend) copy(ctx context.Context, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, deadletter.MaxBytes)
	n := 0
	for lines.Scan() && ctx.Err() == nil {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		l, err := deadletter.Parse(line)
		if err != nil {
			r.refused(n, err)
			continue
		}
		if earlier, ok := r.lines[l.Place]; ok {
			r.repeats(n, earlier)
			continue
		}
		if err := r.to.letter(ctx, n, line, &l); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s:%d: %w", r.name, n+1, err)
	}
	return ctx.Err()
}

// sent records that the events of a line were sent.
func (r *resend) sent(n int, place deadletter.Place, events int) {
	if place.Known() {
		r.lines[place] = n
	}
	r.sum.Records++
	r.sum.Events += events
}

func (r *resend) refused(n int, err error) {
	r.sum.Refused++
	fmt.Fprintf(r.stderr, "%s:%d: %v\n", r.name, n, err)
}

func (r *resend) repeats(n, earlier int) {
	r.sum.Repeats++
	fmt.Fprintf(r.stderr, "line %d repeats the record of line %d: skipped\n", n, earlier)
}

func (r *resend) summary() error {
	if r.json {
		return json.NewEncoder(r.stdout).Encode(r.sum)
	}
	_, err := fmt.Fprintf(r.stdout, "%s of %s sent, %s refused, %s skipped\n", plural(r.sum.Events-r.sum.Dropped, "event"), plural(r.sum.Records, "record"),
		plural(r.sum.Refused, "line"), plural(r.sum.Repeats, "repeat"))
	return err
}

// direct sends letters straight to Kafka.
type direct struct {
	*resend
	emitter *emit.Emitter
	decoder event.Decoder
	dropped atomic.Int64
	why     atomic.Value
}

func newDirect(kafka *kafkaconn.Options, prefix string, r *resend) (letterSender, error) {
	k, err := kafka.Build()
	if err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	d := &direct{resend: r}
	d.emitter, err = k.Emitter(emit.Config{
		Prefix: prefix, ClientID: "tallygate-dead-letters", AsIs: true, Logger: slog.New(slog.DiscardHandler), // the command tells by itself
		OnDrop: func(drop emit.Drop) {
			if drop.Reason != emit.Invalid { // the line is refused for it
				d.dropped.Add(int64(drop.Events))
				d.why.Store(fmt.Sprint(drop.Reason))
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (d *direct) letter(ctx context.Context, n int, _ []byte, l *deadletter.Letter) error {
	events, err := l.Events(&d.decoder, d.now)
	for i := 0; err == nil && i < len(events); i++ {
		sending, cancel := context.WithTimeout(ctx, sendTimeout)
		if err = d.emitter.EmitWait(sending, events[i]); err != nil {
			err = fmt.Errorf("send event %d: %w", i, err)
		}
		cancel()
	}
	if err != nil {
		d.refused(n, err)
		return nil
	}
	d.sent(n, l.Place, len(events))
	return nil
}

// finish sends what was read, also if ctx ended the reading.
func (d *direct) finish(ctx context.Context) error {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer cancel()
	err := d.emitter.Close(closing)
	if d.sum.Dropped = int(d.dropped.Load()); d.sum.Dropped > 0 {
		err = errors.Join(err, fmt.Errorf("%s not sent: %v", plural(d.sum.Dropped, "event"), d.why.Load()))
	}
	return err
}
