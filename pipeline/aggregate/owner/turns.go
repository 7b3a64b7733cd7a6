package owner

import (
	"runtime"
	"time"
)

// turnTime is the time after which a goroutine with much to do lets others of the process run.
//
// Go takes the processor away from a goroutine after 10 ms, wherever that is, and whoever it has woken
// inherits what is left of these. If that one holds a partition's lock, its events wait until all others with
// much to do have had 10 ms each: 20 to 300 ms, where a checkpoint should hold them for half of one. With half of
// Go's time, whoever gets the lock has the other half. Shorter turns would cost: the next partition has its
// states in the processor's cache no more.
const turnTime = 5 * time.Millisecond

// turns are the times on a processor of one goroutine with much to do. The zero value is ready to use.
type turns struct {
	began time.Time
	clock func() time.Time // time.Now if nil
	given int              // how many times others were let run
}

func (t *turns) now() time.Time {
	if t.clock != nil {
		return t.clock()
	}
	return time.Now()
}

// over reports whether it is the others' turn.
func (t *turns) over() bool { return t.now().Sub(t.began) >= turnTime }

// give lets the others run first. The caller holds no lock.
func (t *turns) give() {
	t.given++
	runtime.Gosched()
	t.began = t.now()
}
