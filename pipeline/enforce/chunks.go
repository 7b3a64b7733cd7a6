package enforce

import (
	"encoding/binary"
	"unsafe"
)

// Records lie one behind the other in chunks of bytes. A record that is replaced or removed stays where it is, since a check may be
// reading it; when enough of them have gathered, what is left in a chunk moves to the newest one, and the chunk is
// given up. A check that reads it still has it. The garbage collector sees a few thousand pieces without pointers, however
// many keys there are: as an object a key it would mark ten million of them each time.
const (
	refUnit    = 2  // bytes: records begin at even places
	offsetBits = 19 // of a reference; the rest is the chunk's number
	offsetMask = 1<<offsetBits - 1
	maxChunk   = refUnit << offsetBits // 1 MiB
	minChunk   = 4 << 10
)

// maxChunks bounds the records to 8 GiB. A variable, so that a test need not fill them.
var maxChunks = 1 << (32 - offsetBits)

// chunk is what the writer knows of a chunk.
type chunk struct {
	used   int    // bytes
	live   int    // of these, in records that are held
	shards uint64 // the shards that verdicts in it are of, and perhaps others: a bit each, see shardBit
}

// shardBit is a shard's bit in a set of them; some share one.
func shardBit(shard int) uint64 { return 1 << (uint(shard) % 64) }

// record returns what begins where ref says, to the chunk's end.
func (v *view) record(ref uint32) []byte {
	return v.chunks[ref>>offsetBits][ref&offsetMask*refUnit:]
}

// raw is a record as Check reads it: without a look at the chunk's bounds, which nearly doubled the time of a hit. It is read only where
// record would be, and only as far as what was read of it says that it goes.
type raw struct{ start unsafe.Pointer }

// at is record for Check.
func (v *view) at(ref uint32) raw {
	return raw{unsafe.Add(v.starts[ref>>offsetBits].start, int(ref&offsetMask)*refUnit)}
}

func (r raw) uint16(i int) uint16 {
	return binary.LittleEndian.Uint16((*[2]byte)(unsafe.Add(r.start, i))[:])
}

func (r raw) uint64(i int) uint64 {
	return binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(r.start, i))[:])
}

func (r raw) text(i, n int) string { return unsafe.String((*byte)(unsafe.Add(r.start, i)), n) }

// setChunks makes these the view's chunks.
func (v *view) setChunks(list [][]byte) {
	v.chunks, v.starts = list, make([]raw, len(list))
	for i, data := range list {
		v.starts[i].start = unsafe.Pointer(unsafe.SliceData(data))
	}
}

func roundUp(n int) int { return (n + refUnit - 1) &^ (refUnit - 1) }

// addRecord puts a record at the end of the newest chunk. ok is false when there is no room for another chunk.
func (s *store) addRecord(rec []byte) (ref uint32, ok bool) {
	if s.head < 0 || s.chunks[s.head].used+len(rec) > len(s.view.chunks[s.head]) {
		if !s.openChunk(len(rec)) {
			return 0, false
		}
	}
	c := &s.chunks[s.head]
	at := c.used
	copy(s.view.chunks[s.head][at:], rec)
	size := roundUp(len(rec))
	c.used += size
	c.live += size
	s.live += size
	return uint32(s.head)<<offsetBits | uint32(at/refUnit), true
}

// openChunk makes a new newest chunk, as large as befits what is held, and at least of this size.
func (s *store) openChunk(atLeast int) bool {
	size := minChunk
	for size < maxChunk && size < s.live/8 {
		size *= 2
	}
	size = max(size, roundUp(atLeast))
	number := len(s.chunks)
	for i := range s.chunks {
		if s.view.chunks[i] == nil {
			number = i
			break
		}
	}
	if number >= maxChunks {
		return false
	}
	s.publish(func(v *view) {
		list := make([][]byte, max(len(v.chunks), number+1))
		copy(list, v.chunks)
		list[number] = make([]byte, size)
		v.setChunks(list)
	})
	if number == len(s.chunks) {
		s.chunks = append(s.chunks, chunk{})
	}
	s.chunks[number] = chunk{}
	s.head, s.opened = number, true
	s.size += size
	return true
}

// dropRecord gives a record up.
func (s *store) dropRecord(ref uint32, size int) {
	size = roundUp(size)
	s.chunks[ref>>offsetBits].live -= size
	s.live -= size
}

// tidy moves records out of the chunks with the most garbage until there is at most an eighth as much of it as of records.
func (s *store) tidy() {
	s.opened = false
	for s.head >= 0 && s.size-s.live > s.live/8+len(s.view.chunks[s.head]) {
		worst, most := -1, 0
		for i, c := range s.chunks {
			if data := s.view.chunks[i]; data != nil && i != s.head && len(data)-c.live > most {
				worst, most = i, len(data)-c.live
			}
		}
		if worst < 0 || !s.vacate(worst) {
			return
		}
	}
	if s.live == 0 && s.head >= 0 && len(s.view.chunks[s.head]) > minChunk {
		s.vacate(s.head)
		s.head = -1
	}
}

// vacate moves what is held in a chunk to the newest one, and gives the chunk up.
func (s *store) vacate(number int) bool {
	for ref, rec := range s.records(number) {
		if s.chunks[number].live == 0 {
			break
		}
		if slot := s.slotOf(ref, rec); slot != nil {
			to, ok := s.addRecord(rec)
			if !ok {
				return false
			}
			slot.Store(to)
			s.chunks[s.head].shards |= s.chunks[number].shards
			s.dropRecord(ref, len(rec))
		}
	}
	s.size -= len(s.view.chunks[number])
	s.publish(func(v *view) {
		list := append([][]byte(nil), v.chunks...)
		list[number] = nil
		v.setChunks(list)
	})
	s.chunks[number] = chunk{}
	return true
}

// records yields all records of a chunk, also those that were given up.
func (s *store) records(number int) func(yield func(ref uint32, rec []byte) bool) {
	return func(yield func(uint32, []byte) bool) {
		data := s.view.chunks[number]
		for at := 0; at < s.chunks[number].used; {
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
