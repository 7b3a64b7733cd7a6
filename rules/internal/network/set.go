// Package network reads networks of addresses, and finds out whether an address is in one of many.
package network

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
)

// Set is any number of networks. It is immutable; nil has none. It keeps them as spans of addresses that are
// sorted and do not touch, so that a search takes no longer than in a sorted list.
type Set struct {
	v4   []span[uint32]
	v6   []span[wide]
	hash [sha256.Size]byte
}

// span is all addresses from one to another, which is part of it.
type span[A any] struct{ from, to A }

// wide is an IPv6 address as a number.
type wide struct{ high, low uint64 }

func (a wide) compare(b wide) int {
	return cmp.Or(cmp.Compare(a.high, b.high), cmp.Compare(a.low, b.low))
}

// next is the address behind one; false when that was the last.
func (a wide) next() (wide, bool) {
	if a.low++; a.low == 0 {
		a.high++
	}
	return a, a != wide{}
}

// New returns a Set of networks, as Parse returns them.
func New(networks []netip.Prefix) *Set {
	s := &Set{}
	for _, p := range networks {
		if p.Addr().Is4() {
			s.v4 = append(s.v4, span4(p))
		} else {
			s.v6 = append(s.v6, span6(p))
		}
	}
	s.v4 = merged(s.v4, cmp.Compare[uint32], func(a uint32) (uint32, bool) { return a + 1, a < math.MaxUint32 })
	s.v6 = merged(s.v6, wide.compare, wide.next)
	s.hash = s.sum()
	return s
}

// Hash is the same for Sets of the same addresses, however they are written.
func (s *Set) Hash() [sha256.Size]byte {
	if s == nil {
		return [sha256.Size]byte{}
	}
	return s.hash
}

func (s *Set) sum() [sha256.Size]byte {
	out := binary.BigEndian.AppendUint64(nil, uint64(len(s.v4)))
	for _, p := range s.v4 {
		out = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(out, p.from), p.to)
	}
	for _, p := range s.v6 {
		for _, n := range [...]uint64{p.from.high, p.from.low, p.to.high, p.to.low} {
			out = binary.BigEndian.AppendUint64(out, n)
		}
	}
	return sha256.Sum256(out)
}

// Contains reports whether an address is in one of the networks. One that is written as IPv6 and is IPv4 is
// IPv4; its zone does not matter. The zero Addr is in none.
func (s *Set) Contains(addr netip.Addr) bool {
	if addr = addr.Unmap(); s == nil || !addr.IsValid() {
		return false
	}
	if addr.Is4() {
		a := narrowOf(addr)
		return within(s.v4, span[uint32]{a, a}, cmp.Compare[uint32])
	}
	a := wideOf(addr)
	return within(s.v6, span[wide]{a, a}, wide.compare)
}

// Covers reports whether all addresses of a network, as Parse returns it, are in the Set's.
func (s *Set) Covers(p netip.Prefix) bool {
	switch {
	case s == nil || !p.IsValid():
		return false
	case p.Addr().Is4():
		return within(s.v4, span4(p), cmp.Compare[uint32])
	}
	return within(s.v6, span6(p), wide.compare)
}

// within reports whether one of the spans has all of another.
func within[A any](all []span[A], one span[A], compare func(a, b A) int) bool {
	low, high := 0, len(all) // the last span that begins at one's beginning, or before it, is before high
	for low < high {
		middle := int(uint(low+high) >> 1)
		if compare(all[middle].from, one.from) <= 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low > 0 && compare(one.to, all[low-1].to) <= 0
}

// merged sorts spans, and makes one of those that touch.
func merged[A any](all []span[A], compare func(a, b A) int, next func(A) (A, bool)) []span[A] {
	slices.SortFunc(all, func(a, b span[A]) int { return compare(a.from, b.from) })
	out := all[:0]
	for _, one := range all {
		if n := len(out); n > 0 {
			last := &out[n-1]
			if behind, more := next(last.to); !more || compare(one.from, behind) <= 0 {
				if compare(last.to, one.to) < 0 {
					last.to = one.to
				}
				continue
			}
		}
		out = append(out, one)
	}
	return slices.Clip(out)
}

func span4(p netip.Prefix) span[uint32] {
	from := narrowOf(p.Addr())
	return span[uint32]{from, from | uint32(uint64(math.MaxUint32)>>p.Bits())}
}

func span6(p netip.Prefix) span[wide] {
	from := wideOf(p.Addr())
	to := from
	if bits := p.Bits(); bits <= 64 {
		to.high |= math.MaxUint64 >> bits
		to.low = math.MaxUint64
	} else {
		to.low |= math.MaxUint64 >> (bits - 64)
	}
	return span[wide]{from, to}
}

func narrowOf(addr netip.Addr) uint32 {
	b := addr.As4()
	return binary.BigEndian.Uint32(b[:])
}

func wideOf(addr netip.Addr) wide {
	b := addr.As16()
	return wide{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}
