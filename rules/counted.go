package rules

import (
	"fmt"

	"github.com/tallygate/tallygate/event"
)

// Counter counts keys by their counts under some limits of a set. It may be used by one goroutine at a time.
type Counter struct {
	stepper *Stepper
	of      []*Limit
}

// NewCounter returns a Counter for limits of a set.
func NewCounter(set *Set, of []*Limit) *Counter { return &Counter{set.NewStepper(), of} }

// Counts calls each with what a key has counted at now, and its limit, which may be Unlimited, under those of the limits
// that count by its dimensions. They are the numbers of Explain. state is as for Step.
func (c *Counter) Counts(state, key []byte, now event.Micros, each func(i int, count, limit event.Decimal)) error {
	p := c.stepper
	dims, err := event.ParseKey(key)
	if err != nil {
		return fmt.Errorf("read a key: %w", err)
	}
	p.begin()
	k := p.read(state)
	for i, l := range c.of {
		if !l.Rule.Shape.fits(dims) {
			continue
		}
		window := p.take(p.find(&k, l))
		limit, _ := l.limitBy(&p.extras, p.allow, p.clock.tierAt(l, p.extras.Tier, now), key, now)
		each(i, l.Window.CountAt(window, now), limit)
	}
	return nil
}

// NumberOf is the limit of a key for which nothing tells another one. same is false if keys may have
// limits of their own: by tiers, attributes of events, or overrides.
func NumberOf(l *Limit) (limit event.Decimal, same bool) {
	return l.threshold(), len(l.Tiers) == 0 && l.Told == nil && len(l.overrides) == 0
}
