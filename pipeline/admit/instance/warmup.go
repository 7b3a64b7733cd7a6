package instance

import (
	"math"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
)

// warmth tracks a bucket's warm-up: after idling it begins with a share of its rate and burst, and gets to the whole
// while it is in use.
//
// Let T be WarmUp.Time, f WarmUp.From, and w how long it has been in use, at most T. Rate and burst are the
// limit's times
//
//	share(w) = f + (1-f)·w/T
//
// While there is something in the bucket, w grows with the time, so that the rate grows in a straight line
// to the whole within T. While it is empty w falls as fast. So a key that uses less than half of its rate
// stays cold. An amount above the burst of the moment is let in by an empty bucket.
//
// Guava's SmoothRateLimiter.SmoothWarmingUp and Sentinel's WarmUpController have the same two ends, f = 1/3
// by default (a coldFactor of 3), and cool down in the same time. There the time between two requests falls
// in a straight line with each that is let in (from 3/R to 1/R while T·R/2 of them are), so that the rate
// grows slower at first and faster at last. Guava has no burst while it is cold, Sentinel that of a second.
//
// The bucket itself is that of package windows, at its whole rate, in a time of its own that runs at share(w)
// of ours: in d from w on it advances by
//
//	V(d) = f·d + (1-f)·(w·d + d²/2)/T    up to w+d = T, and by d afterwards.
type warmth struct {
	at      event.Micros // our time
	used    float64      // w, in µs
	virtual float64      // the bucket's time, in µs; it begins with 0
}

// share is the share of rate and burst now.
func (w *warmth) share(by *rules.WarmUp) float64 {
	from := float64(by.From) / float64(event.One)
	return from + (1-from)*w.used/float64(by.Time)
}

// after is V.
func (w *warmth) after(by *rules.WarmUp, d float64) float64 {
	from, whole := float64(by.From)/float64(event.One), float64(by.Time)
	warming := min(d, whole-w.used)
	return from*warming + (1-from)*(w.used*warming+warming*warming/2)/whole + d - warming
}

// until is the inverse of V: how long the bucket's time takes to advance by v.
func (w *warmth) until(by *rules.WarmUp, v float64) float64 {
	if v <= 0 {
		return 0
	}
	whole := float64(by.Time)
	left := whole - w.used
	if warming := w.after(by, left); v >= warming {
		return left + v - warming
	}
	a, b := (1-float64(by.From)/float64(event.One))/(2*whole), w.share(by)
	return 2 * v / (b + math.Sqrt(b*b+4*a*v))
}

// advance brings it to a time of ours. The bucket is empty from a time of its own on.
func (w *warmth) advance(by *rules.WarmUp, now, empty event.Micros) {
	passed := float64(now - w.at)
	if w.at == 0 || passed <= 0 {
		w.at = max(w.at, now)
		return
	}
	busy := min(passed, w.until(by, float64(empty)-w.virtual))
	w.virtual += w.after(by, busy)
	w.used = min(w.used+busy, float64(by.Time))
	idle := passed - busy
	w.virtual += idle
	w.used = max(w.used-idle, 0)
	w.at = now
}

// burst returns the bucket's present bound, with an amount that is to go in.
func (w *warmth) burst(by *rules.WarmUp, burst, amount event.Decimal) event.Decimal {
	return max(event.Decimal(float64(burst)*w.share(by)), min(amount, burst))
}
