// Package retry waits between attempts.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d, and reports whether it passed: false is that ctx ended first. It does not wait
// when d is not positive.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// After returns the wait after so many failures in a row: least after the first, then twice as long each time, but
// not longer than most.
func After(failures int, least, most time.Duration) time.Duration {
	for d := least; ; d *= 2 {
		if failures--; failures <= 0 || d >= most {
			return min(d, most)
		}
	}
}

// Spread draws a pause from the upper half of d: those who failed together do not come back
// together.
func Spread(d time.Duration) time.Duration { return d/2 + rand.N(d-d/2) }

// Backoff returns the waits between attempts of one kind, one after another. Min and Max are required.
type Backoff struct {
	Min, Max time.Duration // as least and most of After
	Spread   bool          // draw the pauses, where many may fail together

	failures int
}

// Next notes one more failure, and returns how long to wait.
func (b *Backoff) Next() time.Duration {
	b.failures++
	d := After(b.failures, b.Min, b.Max)
	if b.Spread {
		d = Spread(d)
	}
	return d
}

// Wait waits after one more failure, and reports whether the pause passed: false is that ctx ended
// first.
func (b *Backoff) Wait(ctx context.Context) bool { return Sleep(ctx, b.Next()) }

// Failures counts those in a row.
func (b *Backoff) Failures() int { return b.failures }

// Reset notes a success.
func (b *Backoff) Reset() { b.failures = 0 }
