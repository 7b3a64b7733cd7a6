package index

import (
	"sync"
	"sync/atomic"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Index holds verdicts. Init makes it ready. Its methods may be called by many goroutines: those
// that read take no lock, but for Walk.
type Index struct {
	view   atomic.Pointer[View]
	*state // apart from what checks read
}

// state changes with every verdict that is written.
type state struct {
	mu sync.Mutex // held by whoever writes
	w  *writer

	verdicts, bytes atomic.Int64
	full            atomic.Bool
}

// Init makes the index ready and empty. causes keeps, of each verdict, the event that it came of:
// about 8 bytes an entry, and the event's id.
func (x *Index) Init(causes bool) { x.state = &state{w: newWriter(&x.view, causes)} }

// Replace makes these all the verdicts of a shard. Readers see each key's verdicts either as they
// were or as they are, and what stays is there throughout. It costs as much as the shard is large,
// however many others there are.
func (x *Index) Replace(shard int, all []verdict.Verdict) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.w.renew(shard, len(all))
	for i := range all {
		if grew, _ := x.w.put(shard, &all[i], true); grew {
			x.w.tidy()
		}
	}
	x.w.dropOlder(shard)
	x.w.shrink()
	x.changed()
}

// Apply adds verdicts to a shard, in order. A clear ends the verdict of its key and rule; a verdict
// whose seq is below that of the one held is ignored.
func (x *Index) Apply(shard int, changes []verdict.Verdict) {
	x.ApplyThen(shard, changes, func(*verdict.Verdict) {})
}

// ApplyThen is Apply, and calls began for each verdict that its key did not have under its rule:
// readers see it by then.
func (x *Index) ApplyThen(shard int, changes []verdict.Verdict, began func(*verdict.Verdict)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range changes {
		grew, isNew := x.w.put(shard, &changes[i], false)
		if isNew {
			began(&changes[i])
		}
		if grew {
			x.w.tidy()
		}
	}
	x.changed()
}

// Remove takes a verdict out of the shard.
func (x *Index) Remove(shard int, key *verdict.RecordKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.w.remove(shard, key)
	x.changed()
}

// Sweep drops what ended until at. Between chunks it lets other writers go on.
func (x *Index) Sweep(at event.Micros) {
	for number := 0; x.sweepChunk(number, at); number++ {
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.w.shrink()
	x.changed()
}

// sweepChunk is Sweep of one chunk; it returns whether there is such a chunk.
func (x *Index) sweepChunk(number int, at event.Micros) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if number >= len(x.w.arena.data) {
		return false
	}
	x.w.sweep(number, at)
	x.changed()
	return true
}

// changed notes what the writer did, for those who don't hold the lock.
func (x *Index) changed() {
	x.verdicts.Store(int64(x.w.verdicts))
	x.bytes.Store(int64(x.w.arena.size + len(x.w.view.buckets)*bucketBytes))
	x.full.Store(x.w.full)
}

// Len returns how many verdicts there are.
func (x *Index) Len() int { return int(x.verdicts.Load()) }

// Bytes returns how much memory they take.
func (x *Index) Bytes() int { return int(x.bytes.Load()) }

// Full reports whether the latest verdict found no room: there is for 8 GiB, which are more than a
// hundred million.
func (x *Index) Full() bool { return x.full.Load() }

// View returns what readers see now.
func (x *Index) View() *View { return x.view.Load() }

// OfAPI reports whether keys of an API have verdicts: then what a check says depends on the API
// before a record is found.
func (v *View) OfAPI() bool { return v.ofAPI }

// OfUsers reports whether more than the record of a uid follows from a uid and an API: a record of
// the API, of both, or of all. Then use Each.
func (v *View) OfUsers() bool { return v.ofUsers }

// User returns the record of a user whose uid is canonical; found is false when there is none.
func (x *Index) User(uid string) (r Record, found bool) {
	q := query{dims: []event.Dim{{Name: dimUID, Value: uid}}}
	for {
		v := x.View()
		if r, ok := x.find(v, v.shapes[shapeUID], &q); ok {
			return r, r.data != nil
		}
	}
}

// Each calls do with the record of each key that someone has with these dimensions, each at most
// once, until do returns false: those of the API, and of all, too. Networks follow from ip.
func (x *Index) Each(api string, dims []event.Dim, do func(Record) bool) {
	q := query{dims: canonical(dims), addr: new(address)}
	v := x.View()
	for i := 0; i < len(v.shapes); i++ { // a shape keeps its number as long as it has a key
		s := v.shapes[i]
		if s == nil {
			continue
		}
		if v.ofAPI && q.api == "" {
			q.api = event.CanonicalDim(dimAPI, api)
		}
		r, ok := x.find(v, s, &q)
		switch {
		case !ok:
			v, i = x.View(), i-1
		case r.data != nil && !do(r):
			return
		}
	}
}

// find returns the record of the key of this shape that the query has; its data are nil when there
// is none. ok is false when v is not the index's view any more: begin again.
func (x *Index) find(v *View, s *shape, q *query) (r Record, ok bool) {
	hash, ok := q.hash(&s.Shape, s.salt)
	if !ok {
		return Record{}, true
	}
	u := User{hash: hash}
	for p := v.Start(u); ; p = v.Next(p) {
		for slots := p.Slots(u); slots != 0; slots = slots.Rest() {
			ref := v.buckets[p.at].refs[slotOf(uint64(slots))].Load()
			if x.View() != v {
				return Record{}, false
			}
			data := v.record(ref)
			if r := splitRecord(data); r.shape == s.number && q.is(r.key, &s.Shape) {
				return Record{v, data}, true
			}
		}
		if p.Last() {
			return Record{}, true
		}
	}
}

// Walk calls do for the record of every key, some thousands under the lock. When the buckets are
// made anew meanwhile it says so by again, and begins again.
func (x *Index) Walk(do func(Record), again func()) {
	const step = 8192 // buckets
	var all buckets
	for from := 0; ; from += step {
		x.mu.Lock()
		v := x.w.view
		if all == nil || &all[0] != &v.buckets[0] {
			all, from = v.buckets, 0
			again()
		}
		for ref := range all[from:min(from+step, len(all))].refs() {
			do(Record{v, v.record(ref)})
		}
		x.mu.Unlock()
		if from+step >= len(all) {
			return
		}
	}
}
