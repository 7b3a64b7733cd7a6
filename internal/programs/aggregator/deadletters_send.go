package aggregator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/deadletter"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// readLetters reads a request's letters: a line each, or an array of them.
func readLetters(w http.ResponseWriter, r *http.Request) (letters [][]byte, err error) {
	conn := http.NewResponseController(w) // without deadlines, the server's apply
	_ = conn.SetReadDeadline(time.Now().Add(readWithin))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxResendBody))
	// Otherwise it would end the request's context during the wait for Kafka.
	_ = conn.SetReadDeadline(time.Time{})
	if err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	if body = bytes.TrimSpace(body); bytes.HasPrefix(body, []byte("[")) {
		letters, err = arrayOf(body)
	} else {
		for line := range bytes.Lines(body) {
			if line = bytes.TrimSpace(line); len(line) == 0 {
				continue
			}
			if letters = append(letters, line); len(letters) > deadletter.MaxLetters {
				break
			}
		}
	}
	switch {
	case err != nil:
		return nil, err
	case len(letters) == 0:
		return nil, errors.New("which letters? The body is those of `tallygate dead-letters --json`: a line each, or an array")
	case len(letters) > deadletter.MaxLetters:
		return nil, fmt.Errorf("more than %d letters: send fewer at once", deadletter.MaxLetters)
	}
	return letters, nil
}

// arrayOf returns an array's elements, at most one more than may be sent.
func arrayOf(body []byte) (letters [][]byte, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	_, err = d.Token() // the bracket
	for err == nil && d.More() && len(letters) <= deadletter.MaxLetters {
		var one json.RawMessage
		if err = d.Decode(&one); err == nil {
			letters = append(letters, one)
		}
	}
	if err == nil && len(letters) <= deadletter.MaxLetters {
		if _, err = d.Token(); err == nil && d.InputOffset() < int64(len(body)) {
			err = errors.New("there is more after the array")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the body is not an array of letters: %w", err)
	}
	return letters, nil
}

// do records in the audit what is sent, sends it, and returns when Kafka has all of it; else the
// status that says why not. If the caller does not wait for the answer, the letters are sent all
// the same, because the audit says so.
func (s *resender) do(asked context.Context, p *resendPlan) (status int, err error) {
	if len(p.letters) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(asked, auditWithin)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	p.answer.ID, err = s.agg.AuditResent(ctx, p.said)
	switch {
	case err == nil:
	case errors.Is(err, aggregate.ErrNotConnected):
		return http.StatusServiceUnavailable, errors.New("not connected to Kafka yet: nothing was sent, try again")
	case s.ctx.Err() != nil:
		return http.StatusServiceUnavailable, errors.New("this instance is stopping: nothing was sent, ask another one")
	default:
		return http.StatusGatewayTimeout, fmt.Errorf("it is not in the audit yet, and nothing was sent: %w", err)
	}
	s.Log.Info("resending dead letters", "by", access.From(asked).Name, "records", len(p.letters))
	return s.send(context.WithoutCancel(asked), p)
}

// send gives the events to their own emitter, which reports when Kafka has them.
func (s *resender) send(ctx context.Context, p *resendPlan) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, sendWithin)
	defer cancel()
	defer context.AfterFunc(s.ctx, func() { time.AfterFunc(stopWithin, cancel) })()
	out, seen, err := s.emitter()
	if err != nil {
		return http.StatusServiceUnavailable, fmt.Errorf("nothing was sent: %w", err)
	}
	err = emitAll(ctx, out, p)
	if closeErr := closeUnlessForbidden(ctx, out); err == nil {
		err = closeErr
	}
	stats := out.Stats()
	if last := stats.LastError; err != nil && last != nil && !errors.Is(err, kafka.TopicAuthorizationFailed) {
		err = last // rather than the timeout
	}
	switch {
	case errors.Is(err, kafka.TopicAuthorizationFailed):
		return http.StatusBadGateway, fmt.Errorf("%d of %d events were sent: aggregators need Write on %s.events for this, `tallygate doctor --acls` prints the command that allows it: %w",
			stats.Emitted, p.answer.Events, s.Config.Prefix, err)
	case stats.Dropped[emit.Refused] > 0:
		return http.StatusBadGateway, fmt.Errorf("%d of %d events were sent, %d are refused, and would be refused again: %w",
			stats.Emitted, p.answer.Events, stats.Dropped[emit.Refused], seen.first())
	case err != nil:
		return http.StatusGatewayTimeout, fmt.Errorf("%d of %d events were sent in time, and others may be in Kafka as well: send these letters again; an event does not count twice while its key remembers its id: %w",
			stats.Emitted, p.answer.Events, err)
	}
	return 0, nil
}

// closeUnlessForbidden waits until Kafka has what was emitted, but not for a right that an operator
// has to grant first.
func closeUnlessForbidden(ctx context.Context, out *emit.Emitter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- out.Close(ctx) }()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	var forbidden error
	for {
		select {
		case err := <-closed:
			return cmp.Or(forbidden, err)
		case <-look.C:
			if last := out.Stats().LastError; errors.Is(last, kafka.TopicAuthorizationFailed) {
				forbidden = last
				cancel()
			}
		}
	}
}

func emitAll(ctx context.Context, out *emit.Emitter, p *resendPlan) error {
	var d event.Decoder
	for _, l := range p.letters {
		events, err := l.Events(&d, p.said.Now)
		for i := 0; err == nil && i < len(events); i++ {
			err = out.EmitWait(ctx, events[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// emitter makes an emitter for one request. So it is known when its events are sent, and events
// that Kafka did not take in time are not sent later.
func (s *resender) emitter() (*emit.Emitter, *drops, error) {
	var seen drops
	out, err := s.Kafka.Emitter(emit.Config{
		Prefix:   s.Config.Prefix,
		ClientID: "tallygate-aggregator-dead-letters", AsIs: true, OnDrop: seen.note, Logger: s.Log,
	})
	return out, &seen, err
}

// drops keeps the reason why the first event was refused.
type drops struct {
	mu  sync.Mutex
	err error
}

func (d *drops) note(drop emit.Drop) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = drop.Err
	}
}

func (d *drops) first() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
