package index

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// writer is the side of an index that changes it. Its caller holds the lock.
type writer struct {
	view *View
	out  *atomic.Pointer[View] // where views are published

	arena    arena
	entries  int // keys
	verdicts int
	flagged  int // buckets that overflowed since they were made
	salt     uint64

	rules       rules
	interned    map[string]*Class // by their texts
	generations map[int]uint64    // by shard: of which its verdicts are since it was last replaced
	causes      bool
	full        bool // a verdict found no room

	text, key, rec []byte // scratch
	list           []held // scratch
}

func newWriter(out *atomic.Pointer[View], causes bool) *writer {
	w := &writer{
		view: &View{buckets: make(buckets, bucketsFor(0)), shapes: []*shape{{Shape: ShapeOf([]string{dimUID})}}}, out: out,
		arena: arena{head: -1}, interned: map[string]*Class{}, generations: map[int]uint64{}, causes: causes,
	}
	out.Store(w.view)
	return w
}

// put makes v what its key has under its rule, unless that is newer; force takes it in any case. It
// reports whether that took another chunk, see tidy, and whether the key did not have it: one that
// began at another time is another one.
func (w *writer) put(shard int, v *verdict.Verdict, force bool) (grew, isNew bool) {
	key := canonical(v.Key) // of an aggregator from before values were cut
	if len(key) == 0 || slices.ContainsFunc(key, func(d event.Dim) bool { return d.Value == "" }) {
		return false, false // such a key is no key: nobody has it
	}
	// What has run out is taken, too: it may be the clock that is ahead. It is swept when that is
	// believed.
	over := v.State == verdict.Clear
	shape := w.view.shape(key)
	b, slot, list := w.find(shape, key)
	i := indexOf(list, v.Rule, v.State == verdict.Warn)
	switch {
	case i < 0 && over, i >= 0 && !force && list[i].seq > v.Seq:
		return false, false
	case over:
		list = slices.Delete(list, i, i+1)
	case i < 0:
		list, isNew = append(list, w.hold(shard, v)), true
	default:
		isNew = list[i].since != v.Since
		list[i] = w.hold(shard, v)
	}
	if shape == nil {
		shape = w.shapeOf(key)
	}
	newest := w.arena.head
	w.key = appendKey(w.key[:0], key)
	w.full = !w.set(shape, w.key, b, slot, list)
	return w.arena.head != newest, isNew && !w.full
}

// remove takes a verdict out, if it is the shard's.
func (w *writer) remove(shard int, k *verdict.RecordKey) {
	key := canonical(k.Key)
	shape := w.view.shape(key)
	b, slot, list := w.find(shape, key)
	if i := indexOf(list, k.Rule, k.Warn); i >= 0 && list[i].class.shard == shard {
		w.key = appendKey(w.key[:0], key)
		w.set(shape, w.key, b, slot, slices.Delete(list, i, i+1))
	}
}

// indexOf returns the place of the verdict that has this rule's record key; -1 when there is none.
func indexOf(list []held, rule string, warn bool) int {
	return slices.IndexFunc(list, func(h held) bool {
		return h.class.Verdict.Rule == rule && (h.class.Verdict.State == verdict.Warn) == warn
	})
}

// find returns where a key's record is, and its verdicts; nil when there is none. The list lives
// until the next find.
func (w *writer) find(shape *shape, key []event.Dim) (b *bucket, slot int, list []held) {
	if shape == nil {
		return nil, 0, nil
	}
	q := query{dims: key}
	hash, _ := q.hash(&shape.Shape, shape.salt)
	for b, j := range w.view.buckets.slots(hash) {
		r := splitRecord(w.view.record(b.refs[j].Load()))
		if r.shape == shape.number && q.is(r.key, &shape.Shape) {
			w.list = r.appendList(w.list[:0], w.view.classes)
			return b, j, w.list
		}
	}
	return nil, 0, nil
}

func (w *writer) hold(shard int, v *verdict.Verdict) held {
	h := held{class: w.classOf(shard, v), until: v.Until, since: v.Since, seq: v.Seq, count: v.Count}
	if w.causes {
		h.cause = v.Cause
	}
	return h
}

// set makes these all the verdicts of a key: in the slot that it has, or a new one. Without any the
// key is removed. ok is false when there is no room; nothing is changed then.
func (w *writer) set(shape *shape, key []byte, b *bucket, slot int, list []held) (ok bool) {
	if b == nil && w.crowded() {
		w.resize(w.entries + w.entries/16)
	}
	var ref uint32
	if len(list) > 0 {
		w.rec = appendRecord(w.rec[:0], shape.number, key, list)
		if ref, ok = w.addRecord(w.rec); !ok {
			return false
		}
		for i := range list {
			list[i].class.refs++
			w.arena.use[w.arena.head].shards |= shardBit(list[i].class.shard)
		}
		w.verdicts += len(list)
	}
	switch {
	case b == nil:
		w.flagged += w.view.buckets.insert(w.view.hashOf(w.rec), ref)
		w.entries++
		shape.entries++
		if flooded(w.flagged, len(w.view.buckets)) { // at once: the next insert may be an hour away
			w.resize(w.entries + w.entries/16)
		}
	case len(list) > 0:
		w.giveUp(b.refs[slot].Load())
		b.refs[slot].Store(ref)
	default:
		old := b.refs[slot].Load()
		b.setTag(slot, 0)
		w.giveUp(old)
		w.entries--
		shape.entries--
	}
	return true
}

// crowded reports whether seven tenths of the slots would be taken with one key more.
func (w *writer) crowded() bool {
	return 10*(w.entries+1) > 7*slotsPerBucket*len(w.view.buckets)
}

// resize gives the index as many buckets as befit so many keys, at least those that are held; more,
// when chance flags too many of these.
func (w *writer) resize(keys int) {
	for n := bucketsFor(keys); ; n += n/4 + 1 {
		next, flagged := make(buckets, n), 0
		for ref := range w.view.buckets.refs() {
			flagged += next.insert(w.view.hashOf(w.view.record(ref)), ref)
		}
		if !flooded(flagged, n) {
			w.flagged = flagged
			w.publish(func(v *View) { v.buckets = next })
			return
		}
	}
}

// addRecord adds a record, in a chunk that readers know before they can meet a reference to it.
func (w *writer) addRecord(rec []byte) (ref uint32, ok bool) {
	ref, ok = w.arena.add(rec)
	w.publishChunks()
	return ref, ok
}

// publishChunks tells readers of chunks that came or went.
func (w *writer) publishChunks() {
	if w.arena.moved {
		w.arena.moved = false
		w.publish(func(v *View) { v.setChunks(w.arena.data) })
	}
}

// publish makes a changed copy of the view what readers see.
func (w *writer) publish(change func(*View)) {
	next := *w.view
	change(&next)
	w.view = &next
	w.out.Store(w.view)
}

// giveUp forgets a record's bytes. Those who read it still can.
func (w *writer) giveUp(ref uint32) {
	rec := w.view.record(ref)
	r := splitRecord(rec)
	rest := r.walk(func(h heading) {
		w.view.classes[h.class].refs--
		w.verdicts--
	})
	w.arena.drop(ref, len(rec)-len(rest))
}

// anyAPI are the APIs of the class of verdicts on an API's key: there are as many such verdicts as APIs, and a check
// finds the key of its own API only.
var anyAPI = []string{"*"}

// classOf returns the class of a verdict, made when there is none.
func (w *writer) classOf(shard int, v *verdict.Verdict) *Class {
	if apiOf(v.Key) != "" {
		shared := *v
		shared.APIs = anyAPI
		v = &shared
	}
	generation := w.generations[shard]
	w.text = appendClassText(w.text[:0], shard, generation, v)
	if c := w.interned[string(w.text)]; c != nil {
		return c
	}
	c := newClass(shard, generation, v, string(w.text))
	c.number, c.Rule = uint64(len(w.view.classes)), w.rules.of(v.Rule)
	if i := slices.Index(w.view.classes, nil); i >= 0 {
		c.number = uint64(i)
	}
	w.interned[c.text] = c
	w.publish(func(v *View) {
		v.classes = append(slices.Clone(v.classes), nil)[:max(len(v.classes), int(c.number)+1)]
		v.classes[c.number] = c
	})
	return c
}

// shapeOf returns the shape of a key, made when there is none.
func (w *writer) shapeOf(key []event.Dim) *shape {
	x := &shape{number: uint64(len(w.view.shapes))}
	if i := slices.Index(w.view.shapes[1:], nil); i >= 0 {
		x.number = uint64(i) + 1
	}
	w.salt += 0x9E3779B97F4A7C15
	x.salt = w.salt
	var names []string
	for _, d := range key {
		names = append(names, strings.Clone(d.Name))
	}
	x.Shape = ShapeOf(names)
	w.publish(func(v *View) {
		shapes := append(slices.Clone(v.shapes), nil)[:max(len(v.shapes), int(x.number)+1)]
		shapes[x.number] = x
		v.setShapes(shapes)
	})
	return x
}
