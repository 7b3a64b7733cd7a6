package aggregator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/deadletter"
	"github.com/tallygate/tallygate/pipeline/aggregate"
)

const (
	// readWithin bounds the arrival of a request's body: other requests wait meanwhile.
	readWithin = 10 * time.Second

	// auditWithin and sendWithin are how long Kafka may take for the audit, and then for the
	// events. Together with readWithin they are less than the listener allows for an answer.
	auditWithin = 5 * time.Second
	sendWithin  = 12 * time.Second

	// stopWithin bounds the sending of events that are in the audit after the program was told to stop.
	stopWithin = 5 * time.Second

	maxResendBody = deadletter.MaxBytes + 64<<10
	maxBy         = 256 // bytes
)

// resender answers POST /v1/dead-letters: it sends fixed events again. It serves one request at a
// time, because it holds that in memory.
type resender struct {
	*Program
	agg  *aggregate.Aggregator
	ctx  context.Context // the program's: its end bounds requests
	slot chan struct{}   // holds one while a request is served
}

func newResender(ctx context.Context, a *Program, agg *aggregate.Aggregator) *resender {
	return &resender{Program: a, agg: agg, ctx: ctx, slot: make(chan struct{}, 1)}
}

// wait returns when no request is being served, and lets no other start.
func (s *resender) wait() { s.slot <- struct{}{} }

// serve runs after the guard: the caller is authorized.
func (s *resender) serve(w http.ResponseWriter, r *http.Request) {
	if s.PublishOnly {
		httpjson.Problem(w, http.StatusNotImplemented, "this program was started with --publish-only: ask an aggregator that counts")
		return
	}
	select {
	case s.slot <- struct{}{}:
		defer func() { <-s.slot }()
	default:
		notNow(w, http.StatusTooManyRequests, "another request is sending dead letters: nothing was done, try again")
		return
	}
	if s.ctx.Err() != nil {
		notNow(w, http.StatusServiceUnavailable, "this instance is stopping: nothing was done, ask another one")
		return
	}
	said, err := resendQuery(r.URL.Query())
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	letters, err := readLetters(w, r)
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		httpjson.Problem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes: send fewer letters at once", tooLarge.Limit))
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		httpjson.Problem(w, http.StatusRequestTimeout, fmt.Sprintf("the body did not arrive within %v, and others wait: send fewer letters at once", readWithin))
		return
	}
	var p *resendPlan
	if err == nil {
		p, err = planResend(letters, said)
	}
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	if status, err := s.do(r.Context(), p); err != nil {
		notNow(w, status, err.Error())
		return
	}
	httpjson.Reply(w, p.answer)
}

// notNow answers that it was not done, and, if nothing of it was, when to try again.
func notNow(w http.ResponseWriter, status int, detail string) {
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	httpjson.Problem(w, status, detail)
}

// resendQuery reads the parameters.
func resendQuery(q url.Values) (said aggregate.Resent, err error) {
	for name, values := range q {
		value := values[0]
		switch {
		case len(values) > 1:
			return said, fmt.Errorf("%.50s is given %d times", name, len(values))
		case name == "now" && (value == "true" || value == "false"):
			said.Now = value == "true"
		case name == "now":
			return said, fmt.Errorf("now=%.50s: true or false", value)
		case name != "by" && name != "on_behalf_of":
			return said, fmt.Errorf("unknown parameter %.50s: there are now, by and on_behalf_of", name)
		case len(value) > maxBy:
			return said, fmt.Errorf("%s has %d bytes, at most %d", name, len(value), maxBy)
		case name == "by":
			said.By = value
		default:
			said.OnBehalfOf = value
		}
	}
	return said, nil
}

// resendPlan lists the events to send, once all letters were checked.
type resendPlan struct {
	letters []*deadletter.Letter // that are sent
	said    aggregate.Resent
	answer  api.Resent
}

// planResend checks each letter. It does not keep the events: the letters, as they came, are all
// that a request takes in memory.
func planResend(letters [][]byte, said aggregate.Resent) (*resendPlan, error) {
	p := &resendPlan{said: said}
	earlier := map[deadletter.Place]int{}
	places := map[deadletter.Place]*aggregate.ResentRecords{} // with an offset of 0
	var d event.Decoder
	for i, text := range letters {
		n, of, err := p.letter(&d, text, earlier)
		switch {
		case err != nil:
			p.answer.Refused++
			p.answer.Letters = append(p.answer.Letters, api.ResentLetter{Refused: err.Error()})
			continue
		case of > 0:
			p.answer.Repeats++
			p.answer.Letters = append(p.answer.Letters, api.ResentLetter{Repeat: of})
			continue
		}
		p.answer.Letters = append(p.answer.Letters, api.ResentLetter{Sent: &n})
		p.answer.Records++
		p.answer.Events += n
		place := p.letters[len(p.letters)-1].Place
		if !place.Known() {
			continue
		}
		earlier[place] = i + 1
		note(places, place)
	}
	if len(places) > deadletter.MaxPlaces {
		return nil, fmt.Errorf("these letters are about records of %d partitions: send those of at most %d at once", len(places), deadletter.MaxPlaces)
	}
	p.said.Letters, p.said.Events = p.answer.Records, p.answer.Events
	for _, at := range places {
		p.said.Records = append(p.said.Records, *at)
	}
	slices.SortFunc(p.said.Records, func(a, b aggregate.ResentRecords) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return p, nil
}

// letter adds a letter to those that are sent, and returns its number of events. Or it returns
// which earlier letter it repeats, or why it is refused.
func (p *resendPlan) letter(d *event.Decoder, text []byte, earlier map[deadletter.Place]int) (events, of int, err error) {
	l, err := deadletter.Parse(text)
	if err != nil {
		return 0, 0, err
	}
	if of, ok := earlier[l.Place]; ok {
		return 0, of, nil
	}
	list, err := l.Events(d, p.said.Now)
	if err != nil {
		return 0, 0, err
	}
	p.letters = append(p.letters, &l)
	return len(list), 0, nil
}

// note widens the range of its partition by a place.
func note(places map[deadletter.Place]*aggregate.ResentRecords, place deadletter.Place) {
	where := place
	where.Offset = 0
	at := places[where]
	if at == nil {
		at = &aggregate.ResentRecords{Topic: place.Topic, Partition: place.Partition, Offset: place.Offset, LastOffset: place.Offset}
		places[where] = at
	}
	at.Letters++
	at.Offset, at.LastOffset = min(at.Offset, place.Offset), max(at.LastOffset, place.Offset)
}
