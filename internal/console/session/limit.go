package session

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// attempts bounds logins that fail, by address and in all, so that nobody guesses tokens or loads the
// aggregator.
type attempts struct {
	mu   sync.Mutex
	all  bucket
	each map[netip.Prefix]*bucket
}

const (
	failuresEach = 10 // a minute, of one address
	failuresAll  = 120
	maxAddresses = 10_000
)

func newAttempts() *attempts {
	return &attempts{all: full(failuresAll, time.Now()), each: map[netip.Prefix]*bucket{}}
}

// begin reports whether an address may try. An attempt counts as failed until it succeeded, so that
// many at once are no way around.
func (a *attempts) begin(r *http.Request, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	from := network(r)
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
func (a *attempts) succeeded(r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all.left++
	if each := a.each[network(r)]; each != nil {
		each.left++
	}
}

// bucket is how many failures are left. Unlike rate.Limiter it takes one back.
type bucket struct {
	left, size, perMinute float64
	filled                time.Time
}

func full(size float64, now time.Time) bucket {
	return bucket{left: size, size: size, perMinute: size, filled: now}
}

// at is what is left at a time. More come with each minute, up to size.
func (b *bucket) at(now time.Time) float64 {
	b.left = min(b.size, b.left+b.perMinute*now.Sub(b.filled).Minutes())
	b.filled = now
	return b.left
}

// network is where a request comes from: an address, of IPv6 the /64, whose addresses one machine has.
func network(r *http.Request) netip.Prefix {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	addr, err := netip.ParseAddr(host)
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
