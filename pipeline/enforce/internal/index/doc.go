// Package index holds verdicts in memory: millions of keys, some 27 bytes each and the key itself,
// read without a lock while one writer changes them. It knows keys, times and APIs. Which verdict
// decides a request, and by which clock, is its caller's business.
//
// # What it does
//
//	var x Index
//	x.Init(false)
//
//	x.Replace(shard, all)     // a snapshot of a shard
//	x.Apply(shard, changes)   // what changed since
//	x.Remove(shard, key)
//	x.Sweep(at)               // drops what has ended
//
//	x.User(uid)               // the record of a user
//	x.Each(api, dims, do)     // the record of each key that someone has
//	x.Walk(do, again)         // all records
//
//	r.Each(do)                // of a record each verdict's Class, since and until: what a check needs
//	r.Verdicts()              // the verdicts themselves
//
// A Class is what the verdicts of one rule share. There are as many as rules, so they are made once
// and compared by pointer; a check looks at a Class, since and until, and at no verdict.
//
// # A check of one user, written out
//
// enforce.Table.Check is User, then Record.Each for a record of one verdict, in pieces that the
// compiler inlines:
//
//	user, n := UserOf(uid), len(uid)                     // its hash; user.Plain(uid): it is a usual uid
//	v := x.View()
//	for p := v.Start(user); ; p = v.Next(p) {            // from bucket to bucket; nearly always there is one
//		for s := p.Slots(user); s != 0; s = s.Rest() {   // those with the hash's tag; nearly always 0 or 1
//			rec, ok := x.At(v, p, s)                     // !ok: the view changed; use User
//			if rec.Fits(n) && rec.UID(n) == uid {        // of 8 to 16 bytes rec.Is(n, user) is faster
//				c, until, differs, ok := v.Only(rec)     // !ok: several verdicts; use User
//				…
//			}
//		}
//		if p.Last() {
//			break                                        // the user has no record
//		}
//	}
//
// So a check that finds nothing, as nearly all do, takes about as long as a read of a bare map that
// finds nothing. As a function of this package the loop costs one call more: a fifth of that.
// One function for Fits, Is and UID joins their branches, and a hit costs 5% more.
//
// # How it lies in memory
//
//	bucket.go   a hash table of buckets, half a cache line each: tags of the keys' hashes, and where their records are
//	arena.go    chunks of bytes, in which the records lie one behind the other
//	record.go   a record: a key and its verdicts in some 20 bytes
//	class.go    what the verdicts of one rule share
//	key.go      dimensions as keys have them, and their shapes: a check looks for one key of each shape
//	view.go     all of that as readers see it: View, Record
//	walk.go     the pieces of a check, and what is unsafe
//	writer.go   changes; upkeep.go: snapshots, sweeps, garbage
//	index.go    the lock, and the functions above
//
// A miss reads one cache line and no key; a hit one more, that of its record.
//
// # Why readers need no lock
//
// A record never changes. A slot gets another record by one atomic store. It is filled before its
// tag is set, and its tag is cleared before it is used again. A key never moves to another slot,
// but for other buckets, which are complete before they are published. So a reader never misses a
// key that is held throughout.
//
// What a slot refers to is in the view that was the index's when the slot was read: a reader that
// finds another one there now begins again. So memory and numbers can be used again, and a reader
// at work still has what it began with.
package index
