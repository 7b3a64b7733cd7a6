package rules

import (
	"net/netip"
	"strings"

	"github.com/tallygate/tallygate/pipeline/event"
)

// eventKeys are the current event's keys, of each shape one.
type eventKeys struct {
	of    []shapeKey
	event uint64 // counts events: tells what in of is of the current one
	text  []byte // of an address
}

// shapeKey is the current event's key of one shape.
type shapeKey struct {
	event uint64 // the eventKeys', when this was made
	there bool   // the event has all dimensions
	long  bool   // it has, and the key is too long
	text  []byte
	hits  []Hit
}

// make makes the event's key of a shape, once an event.
func (m *eventKeys) make(k *shapeKey, e *event.Event, shape *KeyShape) {
	k.event, k.there, k.long, k.text = m.event, true, false, k.text[:0]
	for _, dim := range shape.Dims {
		if k.text, k.there = m.appendDim(k.text, e, dim); !k.there {
			return
		}
	}
	if len(k.text) > event.MaxKey {
		k.there, k.long = false, true
	}
}

// appendDim appends one dimension to a key's text; false when the event lacks it.
func (m *eventKeys) appendDim(text []byte, e *event.Event, dim string) ([]byte, bool) {
	switch dim {
	case "uid":
		if e.UID == "" {
			return text, false
		}
		return event.AppendDim(text, dim, e.UID), true
	case "ip", "ip/64":
		if !e.IP.IsValid() {
			return text, false
		}
		return m.appendIP(event.AppendDim(text, dim, ""), e.IP, dim == "ip/64"), true
	case dimAPI:
		return event.AppendDim(text, dim, e.API), true
	default:
		v, ok := e.Attr(strings.TrimPrefix(dim, "attrs."))
		if !ok {
			return text, false
		}
		return event.AppendDim(text, dim, v.Text), true
	}
}

// appendIP appends an address, or the network of an IPv6 one, as event.AppendDim would append
// its text, without the string in between.
func (m *eventKeys) appendIP(dst []byte, ip netip.Addr, network bool) []byte {
	const bits = 64
	ip = ip.Unmap()
	if ip.Is4() {
		return ip.AppendTo(dst)
	}
	ip = ip.WithZone("")
	if network {
		prefix, _ := ip.Prefix(bits) // fails only for more bits than an address has
		ip = prefix.Addr()
	}
	m.text = ip.AppendTo(m.text[:0])
	for _, b := range m.text {
		if b == ':' {
			dst = append(dst, "%3A"...)
			continue
		}
		dst = append(dst, b)
	}
	if network {
		dst = append(dst, "%2F64"...)
	}
	return dst
}
