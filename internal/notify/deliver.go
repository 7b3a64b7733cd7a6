package notify

import (
	"context"
	"time"

	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/internal/notify/receive"
)

// Pauses between attempts. A receiver that says when it wants the next one is not asked sooner.
const (
	tryAgain = time.Second
	tryMost  = 5 * time.Minute

	logAgain = 5 * time.Minute // between two lines about one receiver that is down
)

// deliver tries until the receiver has the message, or refuses it for good, or ctx ends. before runs first: it
// writes down which message this is.
func (w *worker) deliver(ctx context.Context, m *note.Message, before func() error) error {
	if before != nil {
		if err := before(); err != nil { // then a repeat may have another id; to wait would be worse
			w.uncommitted(err)
		}
	}
	again := retry.Backoff{Min: tryAgain, Max: tryMost, Spread: true}
	var said, began time.Time
	for {
		err := w.to.Send(ctx, m)
		if err == nil {
			w.m.sent.WithLabelValues(w.Name, string(m.Kind)).Inc()
			if !said.IsZero() {
				w.log.Info("the receiver takes messages again", "delivery", m.ID, "waited_seconds", time.Since(began).Seconds())
			}
			return nil
		}
		if ctx.Err() != nil {
			return &receive.Failure{Err: ctx.Err(), Reason: receive.Unreachable}
		}
		f := receive.Failed(err)
		w.m.failed.WithLabelValues(w.Name, f.Reason).Inc()
		if f.Lost {
			return f
		}
		wait := max(again.Next(), f.After)
		if now := time.Now(); said.IsZero() || now.Sub(said) >= logAgain {
			if said = now; began.IsZero() {
				began = now
			}
			w.log.Warn("a message is not accepted; trying again", "kind", string(m.Kind), "delivery", m.ID, "reason", f.Reason, "error", err, "retry_seconds", wait.Seconds())
		}
		if !retry.Sleep(ctx, wait) {
			return &receive.Failure{Err: ctx.Err(), Reason: receive.Unreachable}
		}
	}
}
