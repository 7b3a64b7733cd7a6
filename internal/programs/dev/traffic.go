package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/internal/tools/accesslog"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// traffic is events to replay as if they happened now. Their own times set the pace; the broker's
// times are counted.
type traffic struct {
	name    string
	speed   float64       // 0: as fast as possible
	events  []event.Event // sorted by time; nil for a stream
	skipped string        // describes malformed lines of the input
	endless bool
	stream  io.Reader       // instead of events
	lines   accesslog.Lines // of the stream
}

// newTraffic reads an input, all of it unless it is a stream; nil if there is none. A speed below 0
// is the input's own.
func newTraffic(input string, speed float64, stdin io.Reader, lines accesslog.Lines) (*traffic, error) {
	t := &traffic{name: input, speed: speed, lines: lines}
	if speed < 0 {
		t.speed = 1
	}
	var err error
	switch input {
	case "none":
		return nil, nil //nolint:nilnil // no traffic is a choice
	case "-":
		t.name, t.stream = "standard input", stdin
		return t, nil
	case "":
		t.name, t.endless = "a public web server's", true
		if speed < 0 {
			t.speed = sampleSpeed
		}
		t.events, err = sample()
		return t, err
	}
	if t.events, t.skipped, err = readFile(input, lines); err != nil {
		return nil, fmt.Errorf("read the input: %w", err)
	}
	return t, nil
}

// String describes the traffic for people.
func (t *traffic) String() string {
	if t == nil {
		return "none; emit some of your own"
	}
	pace := fmt.Sprintf("%.4g times as fast as they came", t.speed)
	if t.speed == 0 {
		pace = "as fast as it goes"
	}
	if t.stream != nil {
		return fmt.Sprintf("events from %s, %s", t.name, pace)
	}
	what := "events of " + t.name
	if t.endless {
		what = "requests of a public web server in four days"
	}
	text := fmt.Sprintf("%d %s, %s", len(t.events), what, pace)
	if t.skipped != "" {
		text += "; " + t.skipped
	}
	return text
}

// send replays the traffic until its end or ctx's.
func (s *stack) send(ctx context.Context, to *screen) error {
	em, err := s.kafka.Emitter(emit.Config{Prefix: s.prefix, Logger: s.log})
	if err != nil {
		return err
	}
	defer func() {
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = em.Close(cctx) // the traffic is a sample
	}()
	if err := s.registry.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "tallygate_emit_dropped_total", Help: "Events that the replay could not send.",
	}, func() float64 { return float64(em.Stats().Dropped.Total()) })); err != nil {
		return err
	}
	var denied func(context.Context, *event.Event) bool
	if s.traffic.endless {
		client := &http.Client{Transport: &http.Transport{}, Timeout: 5 * time.Second}
		defer client.CloseIdleConnections()
		denied = s.denies(client)
	}
	for round := 1; ; round++ {
		p := player{emitter: em, speed: s.traffic.speed, round: round, say: to.say, denied: denied}
		if err := p.play(ctx, s.traffic); err != nil {
			return err
		}
		if !s.traffic.endless {
			if err := em.Flush(ctx); err != nil {
				return err
			}
			to.say("the input has ended")
			return nil
		}
	}
}

// denies returns what asks the decision server about a request of the sample, as the service would that serves it. An
// input of your own says itself what became of its requests.
func (s *stack) denies(client *http.Client) func(context.Context, *event.Event) bool {
	return func(ctx context.Context, e *event.Event) bool {
		about := map[string]string{"uid": e.UID, "api": e.API}
		if e.IP.IsValid() {
			about["ip"] = e.IP.String()
		}
		question, err := json.Marshal(about)
		if err != nil {
			return false
		}
		_, answer := s.ask(ctx, client, http.MethodPost, s.addresses().Decisions+"/v1/check", string(question))
		a := struct{ Allowed bool }{true}
		_ = json.Unmarshal(answer, &a) // without an answer it is let in
		return !a.Allowed
	}
}

// player replays an input once.
type player struct {
	emitter *emit.Emitter
	speed   float64
	round   int
	say     func(string)
	denied  func(context.Context, *event.Event) bool // asks whether a request is let in; nil: nobody is asked

	began time.Time
	first event.Micros
}

func (p *player) play(ctx context.Context, t *traffic) error {
	p.first = event.NoTime
	if t.stream != nil {
		return readStream(ctx, t.stream, t.lines, p.emit, p.say)
	}
	for i := range t.events {
		if err := p.emit(ctx, t.events[i]); err != nil {
			return err
		}
	}
	return nil
}

// emit sends the event when it is due. Its error is ctx's. It prints an event that cannot be sent.
func (p *player) emit(ctx context.Context, e event.Event) error {
	if p.speed > 0 && e.Time != event.NoTime {
		if p.first == event.NoTime {
			p.began, p.first = time.Now(), e.Time
		}
		due := p.began.Add(time.Duration(float64((e.Time - p.first).Duration()) / p.speed))
		if !retry.Sleep(ctx, time.Until(due)) {
			return ctx.Err()
		}
	}
	if p.denied != nil && p.denied(ctx, &e) {
		e.Outcome = event.OutcomeLimited
	}
	e.Time, e.BrokerTime = event.NoTime, event.NoTime
	e.ID, e.Refunds = p.again(e.ID), p.again(e.Refunds)
	err := p.emitter.EmitWait(ctx, e)
	if err == nil || ctx.Err() != nil || errors.Is(err, emit.ErrClosed) {
		return err
	}
	p.say(fmt.Sprintf("an event of the input can't be sent: %v", err))
	return nil
}

// again changes the ids in each round after the first.
func (p *player) again(id string) string {
	if p.round == 1 || id == "" {
		return id
	}
	return fmt.Sprintf("%d-%s", p.round, id)
}
