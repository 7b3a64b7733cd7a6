// Package standing says where a key stands under a limit, wherever that is decided: in this process,
// or in Redis with a permit.
package standing

import (
	"math"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
)

// Numbers say where a key stands under one limit: what redis-cell answers of its buckets, of any window.
type Numbers struct {
	Limited bool // the request was not let in

	// Limit is how much may be in the window at once, of a bucket its burst, and Remaining how much more
	// there is room for, with this request in it. They may be fractions.
	Limit, Remaining event.Decimal

	// RetryAfter is when the request would be let in if nothing else happened: 0 when it was, or when
	// nobody knows, as of what is under way, and Never when it is larger than the limit.
	RetryAfter time.Duration

	// ResetAfter is when the whole limit is there again if nothing else happens; 0 when it is, or when
	// nobody knows.
	ResetAfter time.Duration
}

// Never is the RetryAfter of a request that is larger than the limit.
const Never time.Duration = math.MaxInt64
