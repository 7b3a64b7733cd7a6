package blocklist

import (
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/retry"
)

// outages counts errors, and logs the first one of each kind in an outage, and its end, however many workers meet it.
type outages struct {
	log  *slog.Logger
	what string
	kind func(error) Trouble // nil: all are of one kind

	mu     sync.Mutex
	down   map[int32]bool // the workers that are failing
	empty  bool           // that nothing was published yet has been said
	said   map[Trouble]bool
	counts map[Trouble]uint64
	last   error
	lastAt time.Time
}

func (o *outages) failed(who int32, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last, o.lastAt = err, time.Now()
	if errors.Is(err, errNothing) { // Redis is there: the first publisher isn't yet
		if !o.empty {
			o.log.Info(o.what+" has to wait", "reason", err.Error())
		}
		o.empty = true
		return
	}
	if len(o.down) == 0 {
		o.down, o.said = map[int32]bool{}, map[Trouble]bool{}
	}
	o.down[who] = true
	var trouble Trouble
	if o.kind != nil {
		trouble = o.kind(err)
	}
	if o.counts == nil {
		o.counts = map[Trouble]uint64{}
	}
	o.counts[trouble]++
	if o.said[trouble] {
		return
	}
	o.said[trouble] = true
	log := o.log
	if advice := trouble.advice(); advice != "" {
		log = log.With("advice", advice)
	}
	log.Error(o.what+" is interrupted, will retry", "error", err)
}

func (o *outages) worked(who int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.down[who] {
		return
	}
	if delete(o.down, who); len(o.down) == 0 {
		o.log.Info(o.what + " goes on")
	}
}

// gone forgets a worker that stopped while it was failing.
func (o *outages) gone(who int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.down, who)
}

func (o *outages) state() (failing bool, at time.Time, last error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.down) > 0, o.lastAt, o.last
}

// errors returns how many there were of each kind.
func (o *outages) errors() map[Trouble]uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.counts)
}

// newPause is what to wait between attempts at Redis, or at the verdict topic.
func newPause() *retry.Backoff {
	return &retry.Backoff{Min: 50 * time.Millisecond, Max: 2 * time.Second, Spread: true}
}
