// Package standing describes a key's position under a limit, wherever that is decided: in this process, or in Redis
// with a permit.
package standing

import (
	"math"
	"time"

	"github.com/tallygate/tallygate/event"
)

// Numbers describe a key's position under one limit: redis-cell's answer for its buckets, for any window.
type Numbers struct {
	Limited bool // the request was not let in

	// Limit is the greatest count of the window, of a bucket its burst, and Remaining the room that is left, with
	// this request in it. They may be fractions.
	Limit, Remaining event.Decimal

	// RetryAfter is the wait until the request would be let in if nothing else happened: 0 when it was, or when
	// nobody knows, as of actions under way, and Never when it is larger than the limit.
	RetryAfter time.Duration

	// RetryAt is that moment by the clock that decided, so that a calendar window's end is exactly its end; 0 where it
	// is unknown.
	RetryAt event.Micros

	// ResetAfter is the wait until the whole limit is there again if nothing else happens; 0 when it is, or when
	// nobody knows.
	ResetAfter time.Duration
}

// Never is the RetryAfter of a request that is larger than the limit.
const Never time.Duration = math.MaxInt64
