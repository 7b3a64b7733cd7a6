package index

import "iter"

// Records lie one behind the other in chunks of bytes. A record that is replaced or removed stays
// where it is, since a check may be reading it; when enough of them have gathered, what is left in
// a chunk moves to the newest one, and the chunk is given up. A check that reads it still has it.
// The garbage collector sees a few thousand pieces without pointers, however many keys there are:
// as an object a key it would mark ten million of them each time.
const (
	refUnit    = 2  // bytes: records begin at even places
	offsetBits = 19 // of a reference; the rest is the chunk's number
	offsetMask = 1<<offsetBits - 1
	maxChunk   = refUnit << offsetBits // 1 MiB
	minChunk   = 4 << 10
)

// maxChunks bounds the records to 8 GiB. A variable, so that a test need not fill them.
var maxChunks = 1 << (32 - offsetBits)

// arena is the writer's side of the chunks.
type arena struct {
	data  [][]byte // by number; nil is a number that is free. A list that readers have never changes: see set
	use   []use    // by number
	head  int      // the newest chunk; -1: there is none
	size  int      // bytes of all chunks
	live  int      // bytes of all records that are held
	moved bool     // data is another list than readers have
}

// use is the writer's bookkeeping of a chunk.
type use struct {
	used   int    // bytes
	live   int    // of these, in records that are held
	shards uint64 // the shards that verdicts in it are of, and perhaps others: a bit each, see shardBit
}

// shardBit is a shard's bit in a set of them; some share one.
func shardBit(shard int) uint64 { return 1 << (uint(shard) % 64) }

func roundUp(n int) int { return (n + refUnit - 1) &^ (refUnit - 1) }

// add puts a record at the end of the newest chunk. ok is false when there is no room for another
// chunk.
func (a *arena) add(rec []byte) (ref uint32, ok bool) {
	if a.head < 0 || a.use[a.head].used+len(rec) > len(a.data[a.head]) {
		if !a.open(len(rec)) {
			return 0, false
		}
	}
	u := &a.use[a.head]
	at := u.used
	copy(a.data[a.head][at:], rec)
	size := roundUp(len(rec))
	u.used += size
	u.live += size
	a.live += size
	return uint32(a.head)<<offsetBits | uint32(at/refUnit), true
}

// open makes a new newest chunk, as large as befits what is held, and at least of this size.
func (a *arena) open(atLeast int) bool {
	size := minChunk
	for size < maxChunk && size < a.live/8 {
		size *= 2
	}
	size = max(size, roundUp(atLeast))
	number := 0
	for number < len(a.data) && a.data[number] != nil {
		number++
	}
	if number >= maxChunks {
		return false
	}
	if number == len(a.use) {
		a.use = append(a.use, use{})
	}
	a.set(number, make([]byte, size))
	a.head = number
	a.size += size
	return true
}

// set makes data the chunk of this number, in another list.
func (a *arena) set(number int, data []byte) {
	list := make([][]byte, max(len(a.data), number+1))
	copy(list, a.data)
	list[number] = data
	a.data, a.use[number], a.moved = list, use{}, true
}

// drop gives a record up.
func (a *arena) drop(ref uint32, size int) {
	size = roundUp(size)
	a.use[ref>>offsetBits].live -= size
	a.live -= size
}

// worst returns the chunk with the most garbage, if there is more than an eighth as much as there
// are records; else -1. The newest is none.
func (a *arena) worst() int {
	worst, most := -1, 0
	if a.head < 0 || a.size-a.live <= a.live/8+len(a.data[a.head]) {
		return -1
	}
	for i, u := range a.use {
		if data := a.data[i]; data != nil && i != a.head && len(data)-u.live > most {
			worst, most = i, len(data)-u.live
		}
	}
	return worst
}

// free gives a chunk up.
func (a *arena) free(number int) {
	a.size -= len(a.data[number])
	a.set(number, nil)
}

// spare reports whether the newest chunk is larger than an arena without any record needs.
func (a *arena) spare() bool {
	return a.live == 0 && a.head >= 0 && len(a.data[a.head]) > minChunk
}

// records yields all records of a chunk, also those that were given up.
func (a *arena) records(number int) iter.Seq2[uint32, []byte] {
	return func(yield func(uint32, []byte) bool) {
		data := a.data[number]
		for at := 0; at < a.use[number].used; {
			r := splitRecord(data[at:])
			rest := r.walk(func(heading) {})
			size := len(data) - at - len(rest)
			if !yield(uint32(number)<<offsetBits|uint32(at/refUnit), data[at:at+size:at+size]) {
				return
			}
			at += roundUp(size)
		}
	}
}
