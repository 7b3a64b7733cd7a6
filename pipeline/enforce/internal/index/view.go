package index

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// View is a reader's picture of an index. Its lists never change: a new chunk, class or shape, or more buckets, make
// a new view. What changes in place are the buckets' slots, by the one writer.
type View struct {
	buckets buckets
	ofUsers bool     // a shape other than uid's follows from a uid and an API. Each check looks: it lies beside the buckets
	ofAPI   bool     // a shape has api
	chunks  [][]byte // records; nil is a number that is free
	starts  []Raw    // of the chunks
	classes []*Class // by number; nil is free
	shapes  []*shape // by number; nil is free
}

// setShapes makes these the view's shapes.
func (v *View) setShapes(list []*shape) {
	v.shapes, v.ofAPI, v.ofUsers = list, false, false
	for _, s := range list {
		if s != nil && s.number != shapeUID {
			v.ofAPI, v.ofUsers = v.ofAPI || s.has(ofAPI), v.ofUsers || s.isOfUser()
		}
	}
}

// setChunks makes these the view's chunks.
func (v *View) setChunks(list [][]byte) {
	v.chunks, v.starts = list, make([]Raw, len(list))
	for i, data := range list {
		v.starts[i].start = unsafe.Pointer(unsafe.SliceData(data))
	}
}

// record returns what begins where ref says, to the chunk's end.
func (v *View) record(ref uint32) []byte {
	return v.chunks[ref>>offsetBits][ref&offsetMask*refUnit:]
}

// shape returns the shape that a key has; nil when no entry has it.
func (v *View) shape(key []event.Dim) *shape {
	for _, s := range v.shapes {
		if s != nil && slices.EqualFunc(s.names, key, func(name string, d event.Dim) bool { return name == d.Name }) {
			return s
		}
	}
	return nil
}

// hashOf returns the hash of a record's key; 0 when no key has its shape any more.
func (v *View) hashOf(rec []byte) uint64 {
	r := splitRecord(rec)
	if r.shape >= uint64(len(v.shapes)) || v.shapes[r.shape] == nil {
		return 0
	}
	hash, _ := v.shapes[r.shape].hash(r.key)
	return hash
}

// Record is a key and its verdicts, as they lie in memory. It stays what it is whatever the writer
// does. It is four words, so that it is passed in registers.
type Record struct {
	view *View
	data []byte // to the chunk's end
}

// Each calls do for each of the verdicts, in no order.
func (r Record) Each(do func(c *Class, since, until event.Micros)) {
	split := splitRecord(r.data)
	head, tail := split.head, split.tail
	for {
		h, b := readHead(head, tail)
		c := r.view.classes[h.class]
		duration := int64(c.Duration)
		if h.flags&flagDuration != 0 {
			duration, _ = varint(b)
		}
		do(c, h.until-event.Micros(duration), h.until)
		if h.flags&flagMore == 0 {
			return
		}
		b = skipTail(h.flags, b)
		head, tail = b[:headSize], b[headSize:]
	}
}

// Verdicts returns the verdicts themselves, in the order of Each. They share their key.
func (r Record) Verdicts() []*verdict.Verdict {
	split := splitRecord(r.data)
	key := r.AppendKey(nil)
	for i := range key {
		key[i].Value = strings.Clone(key[i].Value)
	}
	list := split.appendList(nil, r.view.classes)
	all := make([]*verdict.Verdict, len(list))
	for i := range list {
		all[i] = list[i].full(key)
	}
	return all
}

// Shape returns the dimensions of the key.
func (r Record) Shape() *Shape { return &r.view.shapes[splitRecord(r.data).shape].Shape }

// AppendKey appends the key's dimensions. Their values are the record's own bytes: they are not to
// be kept.
func (r Record) AppendKey(dst []event.Dim) []event.Dim {
	split := splitRecord(r.data)
	return r.view.shapes[split.shape].appendDims(dst, split.key)
}
