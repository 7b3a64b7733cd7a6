package index

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"unsafe"

	"github.com/tallygate/tallygate/pipeline/event"
)

const (
	dimUID = "uid"
	dimIP  = "ip"
	dimNet = "ip/64"
)

// shape is a list of dimensions that some keys have. A check looks for one key of each shape.
type shape struct {
	number  uint64
	names   []string // sorted
	salt    uint64
	entries int // how many keys there are; the writer's
}

// shapeUID is the number of the shape of uid alone, which is always there.
const shapeUID = 0

// Hash returns the hash of the key that these dimensions make of the ones that are named. ok is
// false when they lack one.
func Hash(names []string, dims []event.Dim) (hash uint64, ok bool) {
	q := query{dims: canonical(dims), addr: new(address)}
	return q.hash(&shape{names: names})
}

// query is who is asked about. It lives on the stack of whoever asks: nothing here may keep a part
// of it.
type query struct {
	dims []event.Dim // each at most once
	addr *address    // what follows from ip; nil: ip and ip/64 are in dims as they are looked for
}

// hash returns the hash of the key of this shape that the query has; ok is false when it lacks a
// dimension.
func (q *query) hash(s *shape) (hash uint64, ok bool) {
	hash = s.salt
	for _, name := range s.names {
		v := q.value(name)
		switch {
		case v.text != "":
			hash = mix(hash, hashString(v.text))
		case len(v.bytes) > 0:
			hash = mix(hash, hashString(unsafe.String(&v.bytes[0], len(v.bytes))))
		default:
			return 0, false
		}
	}
	return hash, true
}

// is reports whether a key of this shape, as its record has it, is the query's.
func (q *query) is(key []byte, s *shape) bool {
	for _, name := range s.names {
		want, rest, ok := nextValue(key, len(s.names))
		if !ok {
			return false
		}
		v := q.value(name)
		if v.text != "" && string(want) != v.text || v.text == "" && string(want) != string(v.bytes) {
			return false
		}
		key = rest
	}
	return true
}

func (q *query) value(name string) value {
	if q.addr != nil && (name == dimIP || name == dimNet) {
		q.addr.parse(q)
		if name == dimIP {
			return value{bytes: q.addr.ip[:q.addr.ipN]}
		}
		return value{bytes: q.addr.net[:q.addr.netN]}
	}
	return value{text: q.dim(name)}
}

func (q *query) dim(name string) string {
	for i := range q.dims {
		if q.dims[i].Name == name {
			return q.dims[i].Value
		}
	}
	return ""
}

// value is one dimension's value: text, or bytes when text is empty.
type value struct {
	text  string
	bytes []byte
}

// address is an ip in its canonical form, and its network. An IPv4 address is its own network, and
// what is no address is an absent one, as in events.
type address struct {
	parsed  bool
	ip, net [48]byte
	ipN     int // how many bytes of ip are the text; 0 when there is none
	netN    int
}

func (a *address) parse(q *query) {
	if a.parsed {
		return
	}
	a.parsed = true
	if text := q.dim(dimIP); text != "" {
		if addr, err := netip.ParseAddr(text); err == nil {
			addr = addr.Unmap().WithZone("")
			a.ipN = len(addr.AppendTo(a.ip[:0]))
			a.netN = len(appendNetwork(a.net[:0], addr))
		}
	} else if text := strings.TrimSuffix(q.dim(dimNet), "/64"); text != "" {
		if addr, err := netip.ParseAddr(text); err == nil {
			a.netN = len(appendNetwork(a.net[:0], addr.Unmap().WithZone("")))
		}
	}
}

func appendNetwork(dst []byte, addr netip.Addr) []byte {
	if addr.Is4() {
		return addr.AppendTo(dst)
	}
	return netip.PrefixFrom(addr, 64).Masked().AppendTo(dst)
}

// canonical returns dimensions as keys have them, whoever wrote them. It allocates only when it
// changes something. Addresses are left to address, which does the same.
func canonical(dims []event.Dim) []event.Dim {
	copied := false
	for i := range dims {
		d := dims[i]
		if d.Name == dimIP || d.Name == dimNet {
			continue
		}
		value := event.CanonicalDim(d.Name, d.Value)
		if value == d.Value {
			continue
		}
		if !copied {
			dims, copied = append([]event.Dim(nil), dims...), true
		}
		dims[i].Value = value
	}
	return dims
}

// appendKey appends a key's values as its record has them.
func appendKey(dst []byte, key []event.Dim) []byte {
	if len(key) == 1 {
		return append(dst, key[0].Value...)
	}
	for _, d := range key {
		dst = binary.AppendUvarint(dst, uint64(len(d.Value)))
		dst = append(dst, d.Value...)
	}
	return dst
}

// appendDims appends the dimensions of a key of this shape. Their values are the key's own bytes.
func (s *shape) appendDims(dst []event.Dim, key []byte) []event.Dim {
	for _, name := range s.names {
		var value []byte
		value, key, _ = nextValue(key, len(s.names))
		dst = append(dst, event.Dim{Name: name, Value: unsafe.String(unsafe.SliceData(value), len(value))})
	}
	return dst
}

// hash returns the hash of a key of this shape; ok is false when no key of it is like that.
func (s *shape) hash(key []byte) (hash uint64, ok bool) {
	hash = s.salt
	for range s.names {
		value, rest, ok := nextValue(key, len(s.names))
		if !ok {
			return 0, false
		}
		hash, key = mix(hash, hashString(unsafe.String(unsafe.SliceData(value), len(value)))), rest
	}
	return hash, true
}

// nextValue returns the next value of a key of n dimensions. ok is false when there is none, as in
// a record that was given up whose shape's number another shape has now.
func nextValue(key []byte, n int) (value, rest []byte, ok bool) {
	if n == 1 {
		return key, nil, true
	}
	length, size := binary.Uvarint(key)
	if size <= 0 || length > uint64(len(key)-size) {
		return nil, nil, false
	}
	end := size + int(length)
	return key[size:end], key[end:], true
}
