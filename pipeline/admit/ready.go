package admit

import (
	"context"
	"errors"
	"fmt"
)

var errNoRules = errors.New("there are none in Redis, or Run does not work: an aggregator has to publish there with the same prefix")

// WaitReady waits until the Admitter knows the rules. Until then each request that it is asked about is in
// doubt. It needs a running Run. When ctx ends first, the error says what is missing, as far as it is
// known, and wraps what ended ctx.
func (a *Admitter) WaitReady(ctx context.Context) error {
	if a.Ready() == nil {
		return nil
	}
	select {
	case <-a.book.knows:
		return nil
	case <-ctx.Done():
	}
	return fmt.Errorf("%w: %w", a.unknown(), context.Cause(ctx))
}

// Ready returns nil once the Admitter knows the rules, and else why it does not, as far as it is known. It waits for
// nothing, and stays nil when Redis goes away.
func (a *Admitter) Ready() error {
	select {
	case <-a.book.knows:
		return nil
	default:
		return a.unknown()
	}
}

func (a *Admitter) unknown() error {
	why := errNoRules
	if failing, _, last := a.book.redis.State(); failing {
		why = last
	}
	return fmt.Errorf("admit: the rules of strict limits are not known yet: %w", why)
}
