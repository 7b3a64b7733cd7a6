package shard

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/tallygate/tallygate/internal/wire"
	"github.com/tallygate/tallygate/pipeline/event"
)

// producers are the emitters whose records a partition has seen. Each heads its records with its
// instance and a sequence per partition: the partition keeps the last one, and so drops exactly
// what a retry put into the log twice.
//
// It is parted by a hash of the name, so that a checkpoint writes what has changed, in records of
// at most 50 KB (see producerlog.go). Each part forgets what was silent for longest when it is
// full: to look one up, and to forget one, takes the same however many there are.
type producers struct {
	own   int32 // the partition
	parts [producerParts]producerPart
}

const (
	producerParts   = 64
	maxPartRows     = 1024
	forgetProducers = event.Day // a retry is minutes late at most
)

// producerName is an emitter's instance, and the partition that it sent to: a mirror may merge
// several partitions into one, and each has sequences of its own.
type producerName struct {
	instance [16]byte
	from     int32
}

// instanceName is 16 bytes, as emitters' instances are; of another length it is hashed.
func instanceName(instance []byte) (name [16]byte) {
	if copy(name[:], instance) == len(name) && len(instance) == len(name) {
		return name
	}
	sum := sha256.Sum256(instance)
	return [16]byte(sum[:])
}

func (n *producerName) part() int { return int(xxhash.Sum64(n.instance[:]) >> 58) }

// producerRow is an emitter's last sequence, and the broker time of its record.
type producerRow struct {
	Seq  uint64       `json:"seq"`
	Seen event.Micros `json:"seen_us"`
}

// producerPart is rows in the order in which they were last used, a list through an array.
type producerPart struct {
	index          map[producerName]uint16
	rows           []usedRow
	newest, oldest uint16

	changed bool   // since the last cut
	due     bool   // changed before the cut, and not written yet
	copied  []byte // as of the cut, when it has changed since
	version uint64 // of what is written; of a part that is due, of what is to be
}

type usedRow struct {
	producerRow
	name         producerName
	newer, older uint16 // noRow behind the ends
}

const noRow = 1<<16 - 1

// repeated notes a record and reports whether it was seen before.
func (s *producers) repeated(instance []byte, from int32, seq uint64, broker event.Micros) bool {
	name := producerName{instanceName(instance), from}
	part := &s.parts[name.part()]
	i, known := part.index[name]
	if known && seq <= part.rows[i].Seq {
		return true
	}
	part.keepCopy()
	if !known {
		i = part.add(name)
	} else if i != part.newest {
		part.unlink(i)
		part.link(i)
	}
	part.rows[i].producerRow, part.changed = producerRow{seq, broker}, true
	return false
}

// keepCopy keeps a part as it was at the cut, before it changes.
func (p *producerPart) keepCopy() {
	if p.due && p.copied == nil {
		p.copied = p.append(nil, event.NoTime)
	}
}

// add makes a row for a name, in place of the one that was silent for longest when the part is
// full.
func (p *producerPart) add(name producerName) (i uint16) {
	if p.index == nil {
		p.index, p.newest, p.oldest = map[producerName]uint16{}, noRow, noRow
	}
	if len(p.rows) < maxPartRows {
		i = uint16(len(p.rows))
		p.rows = append(p.rows, usedRow{})
	} else {
		i = p.oldest
		delete(p.index, p.rows[i].name)
		p.unlink(i)
	}
	p.rows[i].name, p.index[name] = name, i
	p.link(i)
	return i
}

// unlink takes a row out of the list. It is not the newest.
func (p *producerPart) unlink(i uint16) {
	r := &p.rows[i]
	p.rows[r.newer].older = r.older
	if r.older == noRow {
		p.oldest = r.newer
	} else {
		p.rows[r.older].newer = r.newer
	}
}

func (p *producerPart) link(i uint16) {
	p.rows[i].newer, p.rows[i].older = noRow, p.newest
	if p.newest == noRow {
		p.oldest = i
	} else {
		p.rows[p.newest].newer = i
	}
	p.newest = i
}

// all yields the rows, that which was silent for longest first.
func (p *producerPart) all(yield func(*usedRow) bool) {
	if len(p.rows) == 0 {
		return
	}
	for i := p.oldest; i != noRow; i = p.rows[i].newer {
		if !yield(&p.rows[i]) {
			return
		}
	}
}

func (s *producers) put(name producerName, row producerRow) {
	p := &s.parts[name.part()]
	if _, known := p.index[name]; !known {
		i := p.add(name)
		p.rows[i].producerRow, p.changed = row, true
	}
}

// A part on the wire: its format, its version, and the rows, that which was silent for longest
// first: 16 bytes of name, the partition that it sent to, the sequence, when it was seen.
const partFormat = 1

var errPart = errors.New("is not well-formed")

func (p *producerPart) append(dst []byte, since event.Micros) []byte {
	dst = binary.AppendUvarint(append(dst, partFormat), p.version)
	for r := range p.all {
		if r.Seen < since {
			continue
		}
		dst = append(dst, r.name.instance[:]...)
		dst = binary.AppendVarint(dst, int64(r.name.from))
		dst = binary.AppendUvarint(dst, r.Seq)
		dst = binary.AppendVarint(dst, int64(r.Seen))
	}
	return dst
}

func readPart(value []byte) (version uint64, rows []usedRow, err error) {
	if len(value) == 0 {
		return 0, nil, errPart
	}
	if value[0] != partFormat {
		return 0, nil, fmt.Errorf("%w: format %d, this program reads %d", ErrNewerFormat, value[0], partFormat)
	}
	r := wire.Reader{Buf: value[1:]}
	version = r.Uvarint()
	for len(r.Buf) > 0 && !r.Bad {
		var row usedRow
		if copy(row.name.instance[:], r.Buf) < len(row.name.instance) {
			return 0, nil, errPart
		}
		r.Buf = r.Buf[len(row.name.instance):]
		row.name.from, row.Seq, row.Seen = int32(r.Varint()), r.Uvarint(), event.Micros(r.Varint())
		rows = append(rows, row)
	}
	if r.Bad {
		return 0, nil, errPart
	}
	return version, rows, nil
}
