package session

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// attempts bounds logins that fail, by address and in all, so that nobody guesses tokens or loads the
// aggregator.
type attempts struct {
	all *rate.Limiter

	mu   sync.Mutex
	each map[netip.Prefix]*rate.Limiter
}

const (
	failuresEach = 10 // a minute, of one address
	failuresAll  = 120
	maxAddresses = 10_000
)

func newAttempts() *attempts {
	return &attempts{all: perMinute(failuresAll), each: map[netip.Prefix]*rate.Limiter{}}
}

func perMinute(n int) *rate.Limiter {
	return rate.NewLimiter(rate.Every(time.Minute/time.Duration(n)), n)
}

// may reports whether an address may try.
func (a *attempts) may(r *http.Request) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	each := a.each[network(r)]
	return a.all.Tokens() >= 1 && (each == nil || each.Tokens() >= 1)
}

// failed counts an attempt.
func (a *attempts) failed(r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	from := network(r)
	each := a.each[from]
	if each == nil {
		if len(a.each) >= maxAddresses { // those who have not tried for a minute
			for k, l := range a.each {
				if l.Tokens() >= failuresEach {
					delete(a.each, k)
				}
			}
		}
		each = perMinute(failuresEach)
		if len(a.each) < maxAddresses {
			a.each[from] = each
		}
	}
	each.Allow()
	a.all.Allow()
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
