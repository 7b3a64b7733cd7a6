package session

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// attempts bounds logins that fail, by address and in all, so that nobody guesses tokens or loads the
// aggregator. Who is beyond the bounds may be right, and wrong were others of the same address, such as a
// proxy's: these are asked about in turn, few at once.
type attempts struct {
	proxies *httplimit.Proxies // nil: none
	turns   chan struct{}      // taken by those beyond the bounds

	mu   sync.Mutex
	all  bucket
	each map[netip.Prefix]*bucket
}

const (
	failuresEach = 10 // a minute, of one address
	failuresAll  = 120
	maxAddresses = 10_000
	beyondAtOnce = 2 // attempts beyond the bounds
)

func newAttempts(p *httplimit.Proxies) *attempts {
	return &attempts{proxies: p, turns: make(chan struct{}, beyondAtOnce), all: full(failuresAll, time.Now()), each: map[netip.Prefix]*bucket{}}
}

// attempt is one that is under way. A right one counts nothing.
type attempt struct {
	of     *attempts
	from   netip.Prefix
	within bool // the bounds; others have a turn
}

// begin begins an attempt. One beyond the bounds waits for its turn; the error is that of ctx.
func (a *attempts) begin(r *http.Request, now time.Time) (attempt, error) {
	t := attempt{of: a, from: network(a.client(r))}
	if t.within = a.take(t.from, now); t.within {
		return t, nil
	}
	select {
	case a.turns <- struct{}{}:
		return t, nil
	case <-r.Context().Done():
		return t, r.Context().Err()
	}
}

// end gives the turn to the next.
func (t attempt) end() {
	if !t.within {
		<-t.of.turns
	}
}

// take reports whether an address is within the bounds. An attempt counts as failed until it succeeded, so that
// many at once are no way around.
func (a *attempts) take(from netip.Prefix, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	each := a.each[from]
	if each == nil {
		if len(a.each) >= maxAddresses { // those that have not failed for a minute
			for k, b := range a.each {
				if b.at(now) >= failuresEach {
					delete(a.each, k)
				}
			}
		}
		if len(a.each) >= maxAddresses {
			return false
		}
		b := full(failuresEach, now)
		each, a.each[from] = &b, &b
	}
	if each.at(now) < 1 || a.all.at(now) < 1 {
		return false
	}
	each.left--
	a.all.left--
	return true
}

// succeeded takes an attempt back.
func (t attempt) succeeded() {
	if !t.within {
		return
	}
	a := t.of
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all.left++
	if each := a.each[t.from]; each != nil {
		each.left++
	}
}

// bucket counts the failures that are left. Unlike rate.Limiter it takes one back.
type bucket struct {
	left, size, perMinute float64
	filled                time.Time
}

func full(size float64, now time.Time) bucket {
	return bucket{left: size, size: size, perMinute: size, filled: now}
}

// at returns the number left at a time. More come with each minute, up to size.
func (b *bucket) at(now time.Time) float64 {
	b.left = min(b.size, b.left+b.perMinute*now.Sub(b.filled).Minutes())
	b.filled = now
	return b.left
}

// client is the address that a request comes from; "": none is known.
func (a *attempts) client(r *http.Request) string {
	peer, _, err := net.SplitHostPort(r.RemoteAddr)
	if a.proxies == nil {
		return peer
	}
	var hops []string
	if named := r.Header.Values("X-Forwarded-For"); len(named) > 0 {
		hops = strings.Split(strings.Join(named, ","), ",")
	}
	if err == nil { // a Unix socket has no address: it is a proxy's
		hops = append(hops, peer)
	}
	return a.proxies.Client(hops)
}

// network is an address; of IPv6 the /64, whose addresses one machine has.
func network(address string) netip.Prefix {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Prefix{}
	}
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}
