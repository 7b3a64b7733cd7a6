package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/deadletter"
)

const (
	// batchBytes is the size of a request with more than one letter.
	batchBytes = 256 << 10

	// busyTimeout bounds the wait for an aggregator that is busy with another request of this kind.
	busyTimeout = time.Minute
)

// asked has an aggregator send the letters, in batches.
type asked struct {
	*resend
	api  *api.Client
	path string

	body       bytes.Buffer
	lines      []int // numbers of the lines in body
	places     []deadletter.Place
	partitions map[deadletter.Place]bool // of the letters in body; offsets are 0
	failed     bool
}

func newAsked(at *apiclient.Options, by string, r *resend) (letterSender, error) {
	a, err := at.Open()
	if err != nil {
		return nil, err
	}
	q := url.Values{"by": {by}}
	if r.now {
		q.Set("now", strconv.FormatBool(true))
	}
	return &asked{resend: r, api: a, path: "/v1/dead-letters?" + q.Encode(), partitions: map[deadletter.Place]bool{}}, nil
}

func (a *asked) letter(ctx context.Context, n int, line []byte, l *deadletter.Letter) error {
	where := l.Place
	where.Offset = 0
	more := l.Known() && !a.partitions[where]
	if len(a.lines) == deadletter.MaxLetters || a.body.Len()+len(line) >= batchBytes || more && len(a.partitions) == deadletter.MaxPlaces {
		if err := a.flush(ctx); err != nil {
			return err
		}
	}
	a.body.Write(line)
	a.body.WriteByte('\n')
	a.lines, a.places = append(a.lines, n), append(a.places, l.Place)
	if l.Known() {
		a.partitions[where] = true
	}
	return nil
}

// finish sends the rest, unless the run was interrupted.
func (a *asked) finish(ctx context.Context) error {
	defer a.api.Close()
	if ctx.Err() != nil || a.failed {
		return nil
	}
	return a.flush(ctx)
}

// flush sends the batch, and reports each letter.
func (a *asked) flush(ctx context.Context) error {
	if len(a.lines) == 0 {
		return nil
	}
	answer, err := a.ask(ctx)
	if err != nil {
		a.failed = true
		return fmt.Errorf("send lines %d to %d of %s, and the lines after them: %w", a.lines[0], a.lines[len(a.lines)-1], a.name, err)
	}
	for i, l := range answer.Letters {
		switch n := a.lines[i]; {
		case l.Sent != nil:
			a.sent(n, a.places[i], *l.Sent)
		case l.Repeat > 0 && l.Repeat <= i:
			a.repeats(n, a.lines[l.Repeat-1])
		default:
			a.refused(n, errors.New(l.Refused))
		}
	}
	a.body.Reset()
	a.lines, a.places = a.lines[:0], a.places[:0]
	clear(a.partitions)
	return nil
}

// ask waits while the aggregator serves another caller. Once a request is under way, it waits for the
// response even if ctx ends: only that says what was sent.
func (a *asked) ask(ctx context.Context) (*api.Resent, error) {
	for until := time.Now().Add(busyTimeout); ; {
		answer, err := api.Decode[api.Resent](a.api.PostRaw(context.WithoutCancel(ctx), a.path, a.body.Bytes()))
		refused, ok := errors.AsType[*api.Refusal](err)
		switch {
		case ok && refused.After > 0 && time.Now().Add(refused.After).Before(until) && ctx.Err() == nil:
			if !retry.Sleep(ctx, refused.After) {
				return nil, err
			}
			continue
		case ok && refused.Status == http.StatusNotFound:
			return nil, fmt.Errorf("this aggregator is of an older version, and cannot send dead letters: --direct sends straight to Kafka: %w", err)
		case ok:
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("%w (--direct sends straight to Kafka, without an aggregator)", err)
		}
		if len(answer.Letters) != len(a.lines) {
			return nil, fmt.Errorf("the aggregator's response is about %d letters, want %d", len(answer.Letters), len(a.lines))
		}
		return answer, nil
	}
}
