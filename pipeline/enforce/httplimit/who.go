package httplimit

import (
	"cmp"
	"log/slog"
	"sync/atomic"

	"github.com/tallygate/tallygate/event"
)

// Who looks at what a middleware's first requests have of their callers, for mistakes in its options: with them
// nobody is ever denied, and nothing else says so. Each middleware has one.
type Who struct {
	log    *slog.Logger
	noDims atomic.Uint64
	noUID  atomic.Uint64
	reads  bool        // a uid
	over   atomic.Bool // both are known

	dims suspicion
	uid  suspicion
}

// NewWho returns one that warns in log; nil is slog.Default(). readsUID is whether the options have a function of
// the user.
func NewWho(log *slog.Logger, readsUID bool) *Who {
	w := &Who{log: cmp.Or(log, slog.Default()), reads: readsUID}
	w.uid.over.Store(!readsUID)
	return w
}

// Request notes a request's dimensions, as CheckDims takes them. When it has seen what is right it costs one
// atomic load.
func (w *Who) Request(dims []event.Dim) {
	if len(dims) == 0 {
		w.noDims.Add(1)
	}
	known := len(dims) > 0 && dims[0].Name == dimUID
	if w.reads && !known {
		w.noUID.Add(1)
	}
	if w.over.Load() {
		return
	}
	if len(dims) > 0 {
		w.dims.over.Store(true)
	} else if !w.dims.over.Load() && w.dims.again(watchedWho) {
		w.uid.over.Store(true) // one line is enough
		w.log.Warn("none of the first requests had a uid, an address or an attribute, so no verdict denies them: check UID, IP and Attrs of the middleware's options, and that authentication comes before it", "requests", watchedWho)
	}
	if known {
		w.uid.over.Store(true)
	} else if !w.uid.over.Load() && w.uid.again(watchedWho) {
		w.log.Warn("none of the first requests had a uid, so no limit on users holds for them: check UID of the middleware's options, and that authentication comes before it", "requests", watchedWho)
	}
	w.over.Store(w.dims.over.Load() && w.uid.over.Load())
}
