package dev

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// The sample rule that is strict, and how it is shown: a customer wants more at once than there is.
const (
	rushRule = "coupons"
	rushAPI  = "coupon.redeem"
	rushSize = 8
	// The permits of one rush are counted before the next customer comes.
	rushEvery = 20 * time.Second
	rushRetry = 250 * time.Millisecond // while permits are in doubt
)

// rush shows that a strict rule lets no request through too many, however many come at once: it asks the
// decision server, as services do that are not in Go.
type rush struct {
	url     string
	client  *http.Client
	emitter *emit.Emitter
	screen  *screen
}

// rushes sends customers, until ctx ends.
func (s *stack) rushes(ctx context.Context, to *screen) error {
	em, err := s.kafka.Emitter(emit.Config{Prefix: s.prefix, Logger: s.log})
	if err != nil {
		return err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: rushSize}
	defer transport.CloseIdleConnections()
	defer func() {
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = em.Close(cctx) // the traffic is a sample
	}()
	r := rush{
		url: fmt.Sprintf("http://%s/v1/admit", s.decisions.Addr()), emitter: em, screen: to,
		client: &http.Client{Transport: transport, Timeout: 5 * time.Second},
	}
	for n := 1; ; {
		pause := rushRetry
		if r.customer(ctx, fmt.Sprintf("customer-%d", n)) {
			if n == 1 {
				to.tryStrict(r.url, rushBody("you"))
			}
			n, pause = n+1, rushEvery
		}
		if !retry.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// customer asks for all coupons at once, and uses those that it gets. It reports whether permits were
// granted, so that all requests were answered by what is counted.
func (r *rush) customer(ctx context.Context, uid string) bool {
	first, ok := r.ask(ctx, uid)
	if !ok {
		return false // it is in doubt yet
	}
	answers := make([]admission, rushSize)
	answers[0] = first
	var asking sync.WaitGroup
	for i := range answers[1:] {
		asking.Go(func() { answers[i+1], _ = r.ask(ctx, uid) })
	}
	asking.Wait()
	admitted, denied := 0, 0
	for i := range answers {
		switch a := &answers[i]; {
		case a.Admitted:
			admitted++
			r.use(uid, a.permit)
		case a.Limited:
			denied++
		}
	}
	if ctx.Err() == nil {
		r.screen.permits(uid, admitted, denied)
	}
	return true
}

// admission is an answer, and the permit in it.
type admission struct {
	api.Admission
	permit event.Permit
}

// ask asks for a permit. It reports whether it was answered by what is counted.
func (r *rush) ask(ctx context.Context, uid string) (a admission, ok bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, strings.NewReader(rushBody(uid)))
	if err != nil {
		return a, false
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		return a, false
	}
	defer resp.Body.Close()
	if err = json.NewDecoder(resp.Body).Decode(&a); err == nil && a.Permit != "" {
		a.permit, err = event.ParsePermit(fmt.Sprintf(`{"permit": %q, "permit_at": %s}`, a.Permit, a.PermitAt))
	}
	return a, err == nil && !a.InDoubt && (a.Limited || a.permit.ID != "")
}

func rushBody(uid string) string { return fmt.Sprintf(`{"uid": %q, "api": %q}`, uid, rushAPI) }

// use tells Kafka of the action that the permit was for.
func (r *rush) use(uid string, permit event.Permit) {
	r.emitter.Emit(event.Event{UID: uid, API: rushAPI, Outcome: "success", Time: event.NoTime, BrokerTime: event.NoTime, Permit: permit})
}
