package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/internal/input"
	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/event"
)

const (
	// sendPatience is how long Kafka may take for what is sent.
	sendPatience = 30 * time.Second

	// maxLetter is how long a line may be: a record of 2 MiB, each of its bytes written as \u0000.
	maxLetter = 16 << 20
)

// resend is `tallygate dead-letters --send`.
type resend struct {
	kafka          *ops.Kafka
	prefix         string
	now            bool
	stdout, stderr io.Writer
	json           bool

	emitter *emit.Emitter
	dropped atomic.Int64
	decoder event.Decoder
	lines   map[place]int
	sum     resent
}

// resent is the summary.
type resent struct {
	Records int `json:"records"` // of which something was sent
	Events  int `json:"events"`
	Refused int `json:"refused"` // lines that are not sent
	Repeats int `json:"repeats"` // lines of a record that an earlier line has sent
	Dropped int `json:"dropped"` // events that Kafka did not take
}

func (r *resend) file(ctx context.Context, name string, stdin io.Reader) error {
	in, err := input.Open(ctx, name, stdin)
	if err != nil {
		return err
	}
	defer in.Close()
	mechanism, err := r.kafka.Mechanism()
	if err != nil {
		return fmt.Errorf("set up SASL: %w", err)
	}
	var why atomic.Value
	r.emitter, err = emit.New(emit.Config{
		Brokers: r.kafka.Brokers, TLS: r.kafka.TLS, SASL: mechanism,
		Prefix: r.prefix, ClientID: "tallygate-dead-letters", AsIs: true,
		OnDrop: func(d emit.Drop) {
			if d.Reason != emit.Invalid { // that one the line is refused for
				r.dropped.Add(int64(d.Events))
				why.Store(fmt.Sprint(d.Reason))
			}
		},
	})
	if err != nil {
		return &ops.UsageError{Err: err}
	}
	r.lines = map[place]int{}
	readErr := r.copy(ctx, name, in)
	// What was read is sent, also when ctx ended the reading.
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendPatience)
	defer cancel()
	closeErr := r.emitter.Close(closing)
	r.sum.Dropped = int(r.dropped.Load())
	if err := errors.Join(readErr, closeErr, r.summary()); err != nil {
		return err
	}
	switch {
	case r.sum.Dropped > 0:
		return fmt.Errorf("%s not sent: %v", plural(r.sum.Dropped, "event"), why.Load())
	case r.sum.Refused > 0:
		return fmt.Errorf("%s not sent", plural(r.sum.Refused, "line"))
	}
	return nil
}

func (r *resend) copy(ctx context.Context, name string, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLetter)
	n := 0
	for lines.Scan() && ctx.Err() == nil {
		n++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		if err := r.line(ctx, lines.Bytes(), n); err != nil {
			r.sum.Refused++
			fmt.Fprintf(r.stderr, "%s:%d: %v\n", name, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s:%d: %w", name, n+1, err)
	}
	return ctx.Err()
}

// line sends one dead letter, or says what is still bad.
func (r *resend) line(ctx context.Context, line []byte, n int) error {
	var d deadLetter
	if err := json.Unmarshal(line, &d); err != nil {
		return fmt.Errorf("no object as --json writes it: %w", err)
	}
	if earlier, ok := r.lines[d.place]; ok && d.Topic != "" {
		r.sum.Repeats++
		fmt.Fprintf(r.stderr, "line %d is the record of line %d again: passed over\n", n, earlier)
		return nil
	}
	events, err := r.mended(&d)
	if err != nil {
		return err
	}
	for i := range events {
		if r.now {
			events[i].Time = event.NoTime
		}
		sending, cancel := context.WithTimeout(ctx, sendPatience)
		err := r.emitter.EmitWait(sending, events[i])
		cancel()
		if err != nil {
			return fmt.Errorf("send event %d: %w", i, err)
		}
		r.sum.Events++
	}
	r.lines[d.place] = n
	r.sum.Records++
	return nil
}

// mended returns the events to send.
func (r *resend) mended(d *deadLetter) ([]event.Event, error) {
	var value []byte
	switch {
	case d.CutFrom != 0:
		return nil, fmt.Errorf("the value was cut from %d bytes: put the whole one there, and take cut_from out", d.CutFrom)
	case d.Value != nil && d.Value64 != nil:
		return nil, errors.New("value and value_base64: which of them?")
	case d.Value != nil:
		value = []byte(*d.Value)
	case d.Value64 != nil:
		value = d.Value64
	default:
		return nil, errors.New("it has no value")
	}
	headers, err := d.recordHeaders()
	if err != nil {
		return nil, err
	}
	events, err := r.decoder.Decode(value, headers, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("still no event: %w", err)
	}
	array := bytes.HasPrefix(bytes.TrimLeft(value, " \t\r\n"), []byte("["))
	if !array || len(d.Index) == 0 || slices.Contains(d.Index, event.WholeRecord) {
		return events, nil
	}
	wanted := make([]event.Event, 0, len(d.Index))
	for _, i := range d.Index {
		if i < 0 || i >= len(events) {
			return nil, fmt.Errorf("index names element %d of an array that has %d: leave the others in their places, or take index out to send all", i, len(events))
		}
		wanted = append(wanted, events[i])
	}
	return wanted, nil
}

// recordHeaders are the headers that a CloudEvent is read by.
func (d *deadLetter) recordHeaders() ([]event.Header, error) {
	if d.HeadersCut != 0 {
		return nil, fmt.Errorf("%s of the record missing: put those of a CloudEvent there, and take headers_cut out", plural(d.HeadersCut, "header"))
	}
	headers := make([]event.Header, 0, len(d.Headers))
	for _, h := range d.Headers {
		value := h.Value64
		if h.Value != nil {
			value = []byte(*h.Value)
		}
		headers = append(headers, event.Header{Key: h.Key, Value: value})
	}
	return headers, nil
}

func (r *resend) summary() error {
	if r.json {
		return json.NewEncoder(r.stdout).Encode(r.sum)
	}
	_, err := fmt.Fprintf(r.stdout, "%s of %s sent, %s refused, %s passed over\n", plural(r.sum.Events-r.sum.Dropped, "event"), plural(r.sum.Records, "record"),
		plural(r.sum.Refused, "line"), plural(r.sum.Repeats, "repeat"))
	return err
}
