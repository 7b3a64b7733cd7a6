package index

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"unsafe"

	"github.com/tallygate/tallygate/event"
)

const (
	dimUID = "uid"
	dimIP  = "ip"
	dimAPI = "api"
	dimAll = "all"

	allValue = "true" // the only value of all
)

// Shape is a list of dimensions that some keys have.
type Shape struct {
	names []string // sorted
	dims  []dimension
}

// dimension is a name, taken apart.
type dimension struct {
	name string
	kind kind
	addr event.AddressDim // of an address
}

type kind uint8

const (
	ofCaller  kind = iota // uid, attributes: a check has the value
	ofAddress             // ip
	ofNetwork             // follows from ip
	ofAPI
	ofAll
)

// ShapeOf returns the shape of keys with these dimensions.
func ShapeOf(names []string) Shape {
	s := Shape{names: names}
	for _, name := range names {
		d := dimension{name: name}
		switch addr, isAddress := event.ParseAddressDim(name); {
		case name == dimIP:
			d.kind, d.addr = ofAddress, addr
		case isAddress:
			d.kind, d.addr = ofNetwork, addr
		case name == dimAPI:
			d.kind = ofAPI
		case name == dimAll:
			d.kind = ofAll
		}
		s.dims = append(s.dims, d)
	}
	return s
}

// Names returns the names of the dimensions. They are not to be changed.
func (s *Shape) Names() []string { return s.names }

// has reports whether one of the dimensions is of a kind.
func (s *Shape) has(k kind) bool {
	return slices.ContainsFunc(s.dims, func(d dimension) bool { return d.kind == k })
}

// isOfUser reports whether the key follows from a uid and an API.
func (s *Shape) isOfUser() bool {
	return !slices.ContainsFunc(s.dims, func(d dimension) bool { return d.kind != ofAPI && d.kind != ofAll && d.name != dimUID })
}

// Hash returns the hash of the key that these dimensions and the API make. ok is false when they lack
// a dimension.
func (s *Shape) Hash(api string, dims []event.Dim) (hash uint64, ok bool) {
	q := query{api: event.CanonicalDim(dimAPI, api), dims: canonical(dims), addr: new(address)}
	return q.hash(s, 0)
}

// shape is a shape that keys of the index have. A check looks for one key of each.
type shape struct {
	Shape
	number  uint64
	salt    uint64
	entries int // how many keys there are; the writer's
}

// shapeUID is the number of the shape of uid alone, which is always there.
const shapeUID = 0

// query identifies whom a check is about. It lives on the stack of whoever asks: nothing here may keep a part of it.
type query struct {
	api  string      // canonical
	dims []event.Dim // each at most once
	addr *address    // what follows from ip; nil: all dimensions are in dims as they are looked for
}

// hash returns the hash of the key of this shape that the query has; ok is false when it lacks a
// dimension.
func (q *query) hash(s *Shape, salt uint64) (hash uint64, ok bool) {
	hash = salt
	for i := range s.dims {
		d := &s.dims[i]
		if d.kind == ofCaller { // nearly all are
			text := q.dim(d.name)
			if text == "" {
				return 0, false
			}
			hash = mix(hash, hashString(text))
			continue
		}
		switch v := q.value(d); {
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
func (q *query) is(key []byte, s *Shape) bool {
	for i := range s.dims {
		want, rest, ok := nextValue(key, len(s.dims))
		if !ok {
			return false
		}
		v := q.value(&s.dims[i])
		if v.text != "" && string(want) != v.text || v.text == "" && string(want) != string(v.bytes) {
			return false
		}
		key = rest
	}
	return true
}

func (q *query) value(d *dimension) value {
	if q.addr == nil || d.kind == ofCaller {
		return value{text: q.dim(d.name)}
	}
	switch d.kind {
	case ofAPI:
		return value{text: q.api}
	case ofAll:
		return value{text: allValue}
	}
	return value{bytes: q.addr.text(q, d)}
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

// address holds the forms in which keys name the query's ip. What is no address is an absent one, as in events.
type address struct {
	parsed bool
	ip     netip.Addr
	whole  addressText
	part   addressText // the network that was asked for last
}

type addressText struct {
	of    event.AddressDim
	n     int // how many bytes are the text; 0 when there is none
	bytes [48]byte
}

// text returns the value of an address' dimension, until it is asked for another one.
func (a *address) text(q *query, d *dimension) []byte {
	if !a.parsed {
		a.parsed, a.ip = true, parseAddress(q.dim(dimIP))
	}
	t := &a.whole
	if d.kind == ofNetwork {
		t = &a.part
	}
	if t.of != d.addr {
		ip := a.ip
		if !ip.IsValid() && d.kind == ofNetwork && q.dim(dimIP) == "" { // the network alone is known
			network, _, _ := strings.Cut(q.dim(d.name), "/")
			ip = parseAddress(network)
		}
		if t.of, t.n = d.addr, 0; ip.IsValid() {
			t.n = len(d.addr.AppendTo(t.bytes[:0], ip))
		}
	}
	return t.bytes[:t.n]
}

func parseAddress(text string) netip.Addr {
	if text == "" {
		return netip.Addr{}
	}
	addr, _ := event.ParseAddress(text)
	return addr
}

// canonical returns dimensions as keys have them, whoever wrote them. It allocates only when it
// changes something. Addresses are left to address, which does the same.
func canonical(dims []event.Dim) []event.Dim {
	copied := false
	for i := range dims {
		d := dims[i]
		if isAddress(d.Name) {
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

func isAddress(name string) bool { return name == dimIP || strings.HasPrefix(name, dimIP+"/") }

// apiOf returns the API of a key that is of one; "" of others.
func apiOf(key []event.Dim) string {
	for _, d := range key {
		if d.Name == dimAPI {
			return d.Value
		}
	}
	return ""
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
