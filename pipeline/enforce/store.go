package enforce

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tallygate/tallygate/pipeline/event"
)

// store is the writer's side of a table's view. Its caller holds the table's lock.
type store struct {
	view *view
	out  *atomic.Pointer[view] // where views are published; nil: nobody reads this store yet

	entries  int // keys
	verdicts int
	flagged  int // buckets that overflowed since they were made
	salt     uint64

	chunks []chunk
	head   int  // the newest chunk; -1: there is none
	opened bool // since tidy was last called
	size   int  // bytes of all chunks
	live   int  // bytes of all records that are held

	classes     map[string]*class
	generations map[int]uint64 // by shard: of which its verdicts are since it was last replaced
	causes      bool
	full        bool // a verdict found no room

	text, key, rec []byte // scratch
	list           []held // scratch
}

func newStore(entries int, causes bool) *store {
	return &store{
		view: &view{buckets: make([]bucket, bucketsFor(entries)), shapes: []*shape{{names: []string{dimUID}}}},
		head: -1, classes: map[string]*class{}, generations: map[int]uint64{}, causes: causes,
	}
}

// publish makes a changed copy of the view what checks read.
func (s *store) publish(change func(*view)) {
	next := *s.view
	change(&next)
	s.view = &next
	if s.out != nil {
		s.out.Store(s.view)
	}
}

// bucketsFor returns how many buckets so many keys need to fill 60% of the slots.
func bucketsFor(entries int) int { return max(minBuckets, entries*5/(3*slotsPerBucket)+1) }

// crowded reports whether seven tenths of the slots would be taken with one key more.
func (s *store) crowded() bool {
	return 10*(s.entries+1) > 7*slotsPerBucket*len(s.view.buckets)
}

// flooded reports whether readers may have to walk far, since a bucket stays flagged when its keys leave: with so many of n buckets
// flagged. Some, at least, are not.
func flooded(flagged, n int) bool { return 4*flagged > n+16 || flagged >= n }

// sparse reports whether the index is much larger than it need be.
func (s *store) sparse() bool { return len(s.view.buckets) > 4*bucketsFor(s.entries) }

// resize gives the index as many buckets as befit so many keys, at least those that are held; more, when chance flags too many of
// these.
func (s *store) resize(keys int) {
	for n := bucketsFor(keys); ; n += n/4 + 1 {
		if buckets, flagged := s.rebuilt(n); !flooded(flagged, n) {
			s.flagged = flagged
			s.publish(func(v *view) { v.buckets = buckets })
			return
		}
	}
}

// rebuilt returns n buckets with all that is held, and how many of them overflowed.
func (s *store) rebuilt(n int) (buckets []bucket, flagged int) {
	next := &view{buckets: make([]bucket, n)}
	for i := range s.view.buckets {
		b := &s.view.buckets[i]
		for j := range b.refs {
			if b.tag(j) != 0 {
				ref := b.refs[j].Load()
				flagged += next.insert(s.hashOf(s.view.record(ref)), ref)
			}
		}
	}
	return next.buckets, flagged
}

func (b *bucket) tag(slot int) uint64 { return b.tags.Load() >> (8 * slot) & 0xff }

func (b *bucket) setTag(slot int, tag uint64) {
	b.tags.Store(b.tags.Load()&^(0xff<<(8*slot)) | tag<<(8*slot))
}

// insert adds a reference that is not there, and returns how many buckets overflowed with it. There must be room: it panics rather
// than look for it for ever.
func (v *view) insert(hash uint64, ref uint32) (flagged int) {
	for i, left := v.bucketOf(hash), len(v.buckets); left > 0; i, left = (i+1)%uint64(len(v.buckets)), left-1 {
		b := &v.buckets[i]
		for j := range b.refs {
			if b.tag(j) == 0 {
				b.refs[j].Store(ref)
				b.setTag(j, tagOf(hash))
				return flagged
			}
		}
		if word := b.tags.Load(); word&overflowed == 0 {
			b.tags.Store(word | overflowed)
			flagged++
		}
	}
	panic("enforce: no room in an index that was made to have room")
}

// slots yields the slots that have the hash's tag.
func (v *view) slots(hash uint64) func(yield func(*bucket, int) bool) {
	return func(yield func(*bucket, int) bool) {
		tag := tagOf(hash)
		for i, n := v.bucketOf(hash), 0; n < len(v.buckets); i, n = (i+1)%uint64(len(v.buckets)), n+1 {
			b := &v.buckets[i]
			for j := range b.refs {
				if b.tag(j) == tag && !yield(b, j) {
					return
				}
			}
			if b.tags.Load()&overflowed == 0 {
				return
			}
		}
	}
}

// hashOf returns the hash of a record's key; 0 when no key has its shape any more.
func (s *store) hashOf(rec []byte) uint64 {
	r := splitRecord(rec)
	if r.shape >= uint64(len(s.view.shapes)) || s.view.shapes[r.shape] == nil {
		return 0
	}
	shape := s.view.shapes[r.shape]
	hash, key := shape.salt, r.key
	for range shape.names {
		value, rest, ok := nextValue(key, len(shape.names))
		if !ok {
			return 0
		}
		hash, key = mix(hash, hashString(string(value))), rest
	}
	return hash
}

// slotOf returns the slot that refers to a record; nil when it was given up.
func (s *store) slotOf(ref uint32, rec []byte) *atomic.Uint32 {
	for b, j := range s.view.slots(s.hashOf(rec)) {
		if b.refs[j].Load() == ref {
			return &b.refs[j]
		}
	}
	return nil
}

// find returns where a key's record is, and its verdicts; nil when there is none. The list lives until the next find.
func (s *store) find(shape *shape, key []event.Dim) (b *bucket, slot int, list []held) {
	if shape == nil {
		return nil, 0, nil
	}
	q := query{dims: key}
	hash, _ := q.hash(shape)
	for b, j := range s.view.slots(hash) {
		r := splitRecord(s.view.record(b.refs[j].Load()))
		if r.shape == shape.number && q.is(r.key, shape) {
			s.list = r.appendList(s.list[:0], s.view.classes)
			return b, j, s.list
		}
	}
	return nil, 0, nil
}

// shape returns the shape that a key has; nil when no entry has it.
func (v *view) shape(key []event.Dim) *shape {
	for _, s := range v.shapes {
		if s != nil && slices.EqualFunc(s.names, key, func(name string, d event.Dim) bool { return name == d.Name }) {
			return s
		}
	}
	return nil
}

// set makes these all the verdicts of a key: in the slot that it has, or a new one. Without any the key is removed. ok is
// false when there is no room; nothing is changed then.
func (s *store) set(shape *shape, key []byte, b *bucket, slot int, list []held) (ok bool) {
	if b == nil && s.crowded() {
		s.resize(s.entries + s.entries/16)
	}
	var ref uint32
	if len(list) > 0 {
		s.rec = appendRecord(s.rec[:0], shape.number, key, list)
		if ref, ok = s.addRecord(s.rec); !ok {
			return false
		}
		for i := range list {
			list[i].class.refs++
			s.chunks[s.head].shards |= shardBit(list[i].class.shard)
		}
		s.verdicts += len(list)
	}
	switch {
	case b == nil:
		s.flagged += s.view.insert(s.hashOf(s.rec), ref)
		s.entries++
		shape.entries++
		if flooded(s.flagged, len(s.view.buckets)) { // at once: the next insert may be an hour away
			s.resize(s.entries + s.entries/16)
		}
	case len(list) > 0:
		s.giveUp(b.refs[slot].Load())
		b.refs[slot].Store(ref)
	default:
		old := b.refs[slot].Load()
		b.setTag(slot, 0)
		s.giveUp(old)
		s.entries--
		shape.entries--
	}
	return true
}

// giveUp forgets a record's bytes. Those who read it still can.
func (s *store) giveUp(ref uint32) {
	rec := s.view.record(ref)
	r := splitRecord(rec)
	rest := r.walk(func(h heading) {
		s.view.classes[h.class].refs--
		s.verdicts--
	})
	s.dropRecord(ref, len(rec)-len(rest))
}

// shapeOf returns the shape of a key, made when there is none.
func (s *store) shapeOf(key []event.Dim) *shape {
	if x := s.view.shape(key); x != nil {
		return x
	}
	x := &shape{number: uint64(len(s.view.shapes))}
	if i := slices.Index(s.view.shapes[1:], nil); i >= 0 {
		x.number = uint64(i) + 1
	}
	s.salt += 0x9E3779B97F4A7C15
	x.salt = s.salt
	for _, d := range key {
		x.names = append(x.names, strings.Clone(d.Name))
	}
	s.publish(func(v *view) {
		v.shapes = append(slices.Clone(v.shapes), nil)[:max(len(v.shapes), int(x.number)+1)]
		v.shapes[x.number] = x
	})
	return x
}

// release gives up shapes and classes that nothing has any more.
func (s *store) release() {
	unused := func(c *class) bool { return c != nil && c.refs == 0 }
	empty := func(x *shape) bool { return x != nil && x.entries == 0 && x.number != shapeUID }
	if !slices.ContainsFunc(s.view.classes, unused) && !slices.ContainsFunc(s.view.shapes, empty) {
		return
	}
	s.publish(func(v *view) {
		v.classes, v.shapes = slices.Clone(v.classes), slices.Clone(v.shapes)
		for i, c := range v.classes {
			if unused(c) {
				delete(s.classes, c.text)
				v.classes[i] = nil
			}
		}
		for i, x := range v.shapes {
			if empty(x) {
				v.shapes[i] = nil
			}
		}
		for v.shapes[len(v.shapes)-1] == nil { // uid's is always there
			v.shapes = v.shapes[:len(v.shapes)-1]
		}
	})
}
