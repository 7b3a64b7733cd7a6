package group

import "time"

// bucket bounds how many Messages a route sends: so many at once, and so many per time.
type bucket struct {
	most, left float64
	per        time.Duration
	at         time.Time
}

func (k *bucket) fill(now time.Time) {
	if !k.at.IsZero() && now.After(k.at) {
		k.left = min(k.most, k.left+k.most*now.Sub(k.at).Seconds()/k.per.Seconds())
	}
	k.at = now
}

// free returns the moment at which the next Message may go. A nil bucket bounds nothing.
func (k *bucket) free(now time.Time) time.Time {
	if k == nil {
		return now
	}
	if k.fill(now); k.left >= 1 {
		return now
	}
	missing := (1 - k.left) / k.most * k.per.Seconds()
	return now.Add(time.Duration(missing*float64(time.Second)) + time.Millisecond)
}

// take counts a Message that goes; one that was on its way before may go beyond the bound.
func (k *bucket) take(now time.Time) {
	if k != nil {
		k.fill(now)
		k.left = max(0, k.left-1)
	}
}
