package httplimit

import (
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"

	"github.com/tallygate/tallygate/event"
)

// GateStats counts a Gate's requests that hint at a mistake in its options.
type GateStats struct {
	// NoDims counts requests for which UID, IP and Attrs had no value: no verdict denies them, but those
	// on an API's key or on all.
	NoDims uint64
	// NoUID counts requests for which UID had no value: no limit on a user holds for them. It is 0 where
	// Options.UID is not set.
	NoUID uint64
	// Suspects are the mistakes in the log: SuspectNoDims, SuspectNoUID, SuspectSameAddress.
	Suspects []string
}

// What looks like a mistake in a Gate's options. They are fit for labels of metrics.
const (
	SuspectNoDims      = "no_dimensions" // none of the first twenty requests had a dimension
	SuspectNoUID       = "no_uid"        // none of the first twenty requests had a uid, and some had another dimension
	SuspectSameAddress = "same_address"  // each of the first thousand had the same private address, and came through a proxy
)

// Stats returns what the Gate has seen so far.
func (g *Gate) Stats() GateStats {
	s := GateStats{NoDims: g.watch.who.noDims.Load(), NoUID: g.watch.who.noUID.Load()}
	if g.watch.who.dims.told.Load() {
		s.Suspects = append(s.Suspects, SuspectNoDims)
	}
	if g.watch.who.uid.told.Load() {
		s.Suspects = append(s.Suspects, SuspectNoUID)
	}
	if g.watch.address.told.Load() {
		s.Suspects = append(s.Suspects, SuspectSameAddress)
	}
	return s
}

// How many requests have to look like a mistake until it is told: whoever sets a service up sees the first
// few of them, while one address may be that of a single caller for a while.
const (
	watchedWho       = 20
	watchedAddresses = 1000
)

// watch looks at a gate's first requests for mistakes in its options: with them nobody is ever denied, or
// all callers are one, and nothing else says so. When it has seen what is right it costs two atomic loads.
type watch struct {
	log *slog.Logger
	who *Who

	address suspicion
	first   atomic.Pointer[string] // the address of the first request that came through a proxy
}

// suspicion is one mistake. It is over when a request shows that it is none, or when it is told.
type suspicion struct {
	seen       atomic.Uint32
	over, told atomic.Bool
}

// again notes a request that looks like the mistake, and reports whether it is the one to tell it at.
func (s *suspicion) again(watched uint32) bool {
	if s.seen.Add(1) != watched || s.over.Swap(true) {
		return false
	}
	s.told.Store(true)
	return true
}

func (w *watch) init(o *Options) {
	w.log, w.who = o.Logger, NewWho(o.Logger, o.UID != nil)
	w.address.over.Store(o.IP == nil)
}

func (w *watch) request(r *http.Request, dims []event.Dim) {
	w.who.Request(dims)
	if !w.address.over.Load() {
		w.lookAtAddress(r, dims)
	}
}

// lookAtAddress looks at requests that came through a proxy. Without ClientIP's list of proxies each of
// them has the proxy's address.
func (w *watch) lookAtAddress(r *http.Request, dims []event.Dim) {
	ip := ""
	for i := range dims {
		if dims[i].Name == dimIP {
			ip = dims[i].Value
		}
	}
	if ip == "" || len(r.Header["X-Forwarded-For"]) == 0 {
		return
	}
	first := w.first.Load()
	if first == nil {
		own := ip
		if w.first.CompareAndSwap(nil, &own) {
			first = &own
		} else {
			first = w.first.Load()
		}
	}
	if ip != *first || !private(ip) {
		w.address.over.Store(true)
	} else if w.address.again(watchedAddresses) {
		w.log.Warn("all of the first requests that came through a proxy have the same private address, so all callers share one key: give the proxies' networks to ClientIP, ForwardedIP or HeaderIP", "address", *first, "requests", watchedAddresses)
	}
}

// shared is the range for the insides of providers' networks, RFC 6598.
var shared = netip.MustParsePrefix("100.64.0.0/10")

func private(text string) bool {
	ip, ok := event.ParseAddress(text)
	return ok && (ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || shared.Contains(ip))
}
