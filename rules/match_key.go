package rules

import (
	"net/netip"
	"strings"

	"github.com/tallygate/tallygate/pipeline/event"
)

// makeKey makes the event's key of a shape, once an event.
func (m *Matcher) makeKey(k *shapeKey, e *event.Event, shape *KeyShape) {
	k.event, k.there, k.long, k.text = m.event, true, false, k.text[:0]
	for _, dim := range shape.Dims {
		if k.there = m.appendDim(k, e, dim); !k.there {
			return
		}
	}
	if len(k.text) > event.MaxKey {
		k.there, k.long = false, true
	}
}

// appendDim appends one dimension to a key's text; false when the event lacks it.
func (m *Matcher) appendDim(k *shapeKey, e *event.Event, dim string) bool {
	switch dim {
	case "uid":
		if e.UID == "" {
			return false
		}
		k.text = event.AppendDim(k.text, dim, e.UID)
	case "ip", "ip/64":
		if !e.IP.IsValid() {
			return false
		}
		k.text = m.appendIP(event.AppendDim(k.text, dim, ""), e.IP, dim == "ip/64")
	default:
		v, ok := e.Attr(strings.TrimPrefix(dim, "attrs."))
		if !ok {
			return false
		}
		k.text = event.AppendDim(k.text, dim, v.Text)
	}
	return true
}

// appendIP appends an address, or the network of an IPv6 one, as event.AppendDim would append
// its text, without the string in between.
func (m *Matcher) appendIP(dst []byte, ip netip.Addr, network bool) []byte {
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
