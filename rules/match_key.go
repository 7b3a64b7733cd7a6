package rules

import (
	"net/netip"
	"strings"

	"github.com/tallygate/tallygate/event"
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
	for i := range shape.parts {
		if k.text, k.there = m.appendDim(k.text, e, &shape.parts[i]); !k.there {
			return
		}
	}
	if len(k.text) > event.MaxKey {
		k.there, k.long = false, true
	}
}

// keyDim is one dimension of a key, its name taken apart.
type keyDim struct {
	name string
	kind dimKind
	attr string           // of dimAttr: the attribute
	addr event.AddressDim // of dimAddress
}

type dimKind uint8

const (
	dimUID dimKind = iota
	dimAddress
	dimOfAPI
	dimOfAll
	dimAttr
)

// keyDims takes names apart that event.IsDim accepts.
func keyDims(names []string) []keyDim {
	out := make([]keyDim, len(names))
	for i, name := range names {
		d := keyDim{name: name}
		switch name {
		case "uid":
			d.kind = dimUID
		case dimAPI:
			d.kind = dimOfAPI
		case dimAll:
			d.kind = dimOfAll
		default:
			var isAddress bool
			if d.addr, isAddress = event.ParseAddressDim(name); isAddress {
				d.kind = dimAddress
				break
			}
			d.kind, d.attr = dimAttr, strings.TrimPrefix(name, "attrs.")
		}
		out[i] = d
	}
	return out
}

// appendDim appends one dimension to a key's text; false when the event lacks it.
func (m *eventKeys) appendDim(text []byte, e *event.Event, dim *keyDim) ([]byte, bool) {
	switch dim.kind {
	case dimUID:
		if e.UID == "" {
			return text, false
		}
		return event.AppendDim(text, dim.name, e.UID), true
	case dimAddress:
		if !e.IP.IsValid() {
			return text, false
		}
		return m.appendIP(event.AppendDim(text, dim.name, ""), e.IP, dim.addr), true
	case dimOfAPI:
		return event.AppendDim(text, dim.name, e.API), e.API != ""
	case dimOfAll:
		return event.AppendDim(text, dim.name, allValue), true
	default:
		v, ok := e.Attr(dim.attr)
		if !ok {
			return text, false
		}
		return event.AppendDim(text, dim.name, v.Text), true
	}
}

// appendIP appends an address, or its network, as event.AppendDim would append its text, without the
// string in between.
func (m *eventKeys) appendIP(dst []byte, ip netip.Addr, dim event.AddressDim) []byte {
	if ip.Is4() && dim.Whole(ip) {
		return ip.AppendTo(dst)
	}
	m.text = dim.AppendTo(m.text[:0], ip)
	for _, b := range m.text {
		switch b {
		case ':':
			dst = append(dst, "%3A"...)
		case '/':
			dst = append(dst, "%2F"...)
		default:
			dst = append(dst, b)
		}
	}
	return dst
}
