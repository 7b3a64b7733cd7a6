package keystate

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/tallygate/tallygate/event"
)

// recentIDs are the ids that a key has seen lately, oldest first: each one's hash, and its
// stamp, the key's latest time when the id first came. Stamps never go down. On the wire:
//
//	count   uvarint; nothing follows a 0
//	length  uvarint: of the stamps in bytes
//	hashes  8 bytes each, together, so that a search runs over them alone
//	stamps  uvarints: the key's latest time less the first stamp, the same less the last one, so that
//	        neither end asks for a walk, then from the second on each one less its predecessor
type recentIDs struct {
	hashes      []byte
	first, last uint64 // ages: the key's latest time less the stamp
	gaps        []byte
}

// read takes the ids off b into r, which is empty.
func (r *recentIDs) read(b []byte) (rest []byte, err error) {
	count, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, fmt.Errorf("%w: no count of ids", ErrMalformed)
	}
	b = b[n:]
	if count == 0 {
		return b, nil
	}
	size, n := binary.Uvarint(b)
	if n <= 0 || count > uint64(len(b)-n)/8 || size > uint64(len(b)-n)-8*count {
		return nil, fmt.Errorf("%w: the ids are cut off", ErrMalformed)
	}
	b = b[n:]
	r.hashes, b = b[:8*count], b[8*count:]
	ages := varints{b: b[:size]}
	r.first, r.last = ages.uvarint(), ages.uvarint()
	if ages.bad {
		return nil, fmt.Errorf("%w: the ids' times are cut off", ErrMalformed)
	}
	r.gaps = ages.b
	return b[size:], nil
}

// check reports whether there is a stamp for each hash, and the last one is what the others
// lead to, not after latest, the key's latest time.
func (r *recentIDs) check(latest event.Micros) error {
	if r.len() == 0 {
		return nil
	}
	gaps := varints{b: r.gaps}
	age := r.first
	for range r.len() - 1 {
		gap := gaps.uvarint()
		if gap > age {
			gaps.bad = true
		}
		age -= gap
	}
	if gaps.bad || len(gaps.b) > 0 || age != r.last || r.first > uint64(latest-event.MinTime) {
		return fmt.Errorf("%w: the ids' times", ErrMalformed)
	}
	return nil
}

func (r *recentIDs) len() int { return len(r.hashes) / 8 }

// stamp returns the i-th id's, of a key whose latest time is latest.
func (r *recentIDs) stamp(i int, latest event.Micros) event.Micros {
	at := latest - event.Micros(r.first)
	gaps := varints{b: r.gaps}
	for range i {
		at += event.Micros(gaps.uvarint())
	}
	return at
}

// find returns the place of a hash, or -1.
func (r *recentIDs) find(hash uint64) int {
	for i := 0; i+8 <= len(r.hashes); i += 8 {
		if binary.LittleEndian.Uint64(r.hashes[i:]) == hash {
			return i / 8
		}
	}
	return -1
}

// trim drops so many ids from the front, and those behind them that are too old by latest. The key's latest time
// was before.
func (ru IDRules) trim(r *recentIDs, before, latest event.Micros, drop int) {
	for ; len(r.hashes) > 0 && (drop > 0 || !ru.young(before-event.Micros(r.first), latest)); drop-- {
		gaps := varints{b: r.gaps}
		r.first -= gaps.uvarint()
		r.hashes, r.gaps = r.hashes[8:], gaps.b
	}
}

// age has the ids be as they are by later time.
func (r *recentIDs) age(by event.Micros) {
	r.first += uint64(by)
	r.last += uint64(by)
}

// IDRules bound the ids that a key remembers.
type IDRules struct {
	Most int
	Age  event.Micros
}

// young reports whether an id of this stamp still counts as seen.
func (ru IDRules) young(stamp, latest event.Micros) bool { return latest-stamp < ru.Age }

// Seen reports whether an event of this id would be a repeat. The key's latest time was
// before; with the event it is latest.
func (ru IDRules) Seen(r *recentIDs, hash uint64, before, latest event.Micros) bool {
	i := r.find(hash)
	return i >= 0 && ru.young(r.stamp(i, before), latest)
}

// AppendTo appends the ids to dst, without those that are too old or too many. When add is
// true, hash comes behind them.
func (ru IDRules) AppendTo(dst []byte, r recentIDs, before, latest event.Micros, hash uint64, add bool) []byte {
	room := ru.Most
	if add = add && ru.Most > 0 && ru.Age > 0; add {
		room--
	}
	ru.trim(&r, before, latest, r.len()-room)
	if r.len() == 0 {
		if !add {
			return append(dst, 0)
		}
		dst = append(dst, 1, 2) // one id, two bytes of stamps
		dst = binary.LittleEndian.AppendUint64(dst, hash)
		return append(dst, 0, 0)
	}
	r.age(latest - before)
	if add {
		return r.appendWith(dst, hash)
	}
	return r.append(dst)
}

// AppendMore appends one more id to those that AppendTo has appended to dst from start on, for a key
// whose latest time is latest.
func (ru IDRules) AppendMore(dst []byte, start int, latest event.Micros, hash uint64) []byte {
	var ids recentIDs
	if _, err := ids.read(dst[start:]); err != nil {
		return dst // not reached: AppendTo wrote them
	}
	end := len(dst)
	dst = ru.AppendTo(dst, ids, latest, latest, hash, true)
	n := copy(dst[start:], dst[end:])
	return dst[:start+n]
}

func (r *recentIDs) append(dst []byte) []byte {
	dst = r.appendSizes(dst, r.len(), r.last, len(r.gaps))
	dst = append(dst, r.hashes...)
	dst = binary.AppendUvarint(dst, r.first)
	dst = binary.AppendUvarint(dst, r.last)
	return append(dst, r.gaps...)
}

// appendWith appends the ids, at least one, and one more whose stamp is the latest time.
func (r *recentIDs) appendWith(dst []byte, hash uint64) []byte {
	dst = r.appendSizes(dst, r.len()+1, 0, len(r.gaps)+uvarintLen(r.last))
	dst = append(dst, r.hashes...)
	dst = binary.LittleEndian.AppendUint64(dst, hash)
	dst = binary.AppendUvarint(dst, r.first)
	dst = binary.AppendUvarint(dst, 0)
	dst = append(dst, r.gaps...)
	return binary.AppendUvarint(dst, r.last)
}

func (r *recentIDs) appendSizes(dst []byte, count int, last uint64, gaps int) []byte {
	dst = binary.AppendUvarint(dst, uint64(count))
	return binary.AppendUvarint(dst, uint64(uvarintLen(r.first)+uvarintLen(last)+gaps))
}

// Spent returns the moment from which none of the ids counts as seen any more, for a key whose latest time is latest.
func (ru IDRules) Spent(r *recentIDs, latest event.Micros) event.Micros {
	if r.len() == 0 {
		return latest
	}
	return max(latest, Later(latest-event.Micros(r.last), ru.Age))
}

func uvarintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }
