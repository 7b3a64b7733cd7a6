package shard

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/wire"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
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

// BrokerTime is a record's time; event.NoTime when it has none, as its producer may leave it out
// where the topic takes the producer's.
func BrokerTime(rec *record.Record) event.Micros {
	const none = -1
	if rec.Timestamp == none {
		return event.NoTime
	}
	return event.FromTime(rec.Time())
}

// senderOf reads an emitter's headers of a record: its instance, the partition that it sent the record to, and the
// record's number there. No instance or 0 is what does not come from an emitter. Without a partition it is the one
// that the record is in.
func senderOf(headers record.Headers, partition int32) (instance []byte, to int32, seq uint64) {
	to = partition
	for {
		key, value, ok := headers.Next()
		if !ok {
			return instance, to, seq
		}
		switch string(key) {
		case event.HeaderInstance:
			instance = value
		case event.HeaderSequence:
			seq, _ = event.ParseSequence(value)
		case event.HeaderPartition:
			if named, ok := event.ParsePartition(value); ok {
				to = named
			}
		}
	}
}

// Repeats finds the records that an emitter's retry put into a partition's log twice, as its Shard
// does: for those who read the log otherwise. Make it with NewRepeats.
type Repeats struct{ producers producers }

// NewRepeats knows no emitter of the partition yet.
func NewRepeats(partition int32) *Repeats { return &Repeats{producers{own: partition}} }

// Has notes a record, and reports whether it was seen before. Records come in the order of the log.
func (r *Repeats) Has(rec *record.Record) bool { return r.producers.has(rec) }

// has is Repeats.Has.
func (s *producers) has(rec *record.Record) bool {
	instance, to, seq := senderOf(rec.Headers, s.own)
	return len(instance) > 0 && seq > 0 && s.repeated(instance, to, seq, BrokerTime(rec))
}

// The parts of the table of producers are records of their own in the changelog, under two keys
// each, in turns. A checkpoint names the version of each part that belongs to it. It is as of the
// checkpoint's cut: a newer one would have a new owner drop events that no state has yet, and so
// the one before stays until the next checkpoint is durable.

const partPrefix = "\x00producers/"

func partKey(part int, version uint64) string {
	return fmt.Sprintf("%s%02d/%d", partPrefix, part, version%2)
}

func isPart(key []byte) bool { return strings.HasPrefix(string(key), partPrefix) }

// ProducerParts is the number of parts of the table of producers.
const ProducerParts = producerParts

// inlineProducers bounds the rows in a checkpoint record itself, as in those of older programs.
const inlineProducers = 64

// cut says in a checkpoint what is known at this moment. What has changed and is too much for its
// record is written by write, before the checkpoint.
func (s *producers) cut(c *checkpoint) {
	if rows, ok := s.inline(); ok {
		c.Producers = rows
		return
	}
	c.ProducerParts = make([]uint64, producerParts)
	for i := range s.parts {
		p := &s.parts[i]
		if p.changed {
			p.changed, p.due = false, true
			p.version++
		}
		c.ProducerParts[i] = p.version
	}
}

// inline returns all rows, if they are few and sent to this partition; in hexadecimal, since
// instances are any bytes, and JSON's strings are not.
func (s *producers) inline() (map[string]producerRow, bool) {
	n := 0
	for i := range s.parts {
		if n += len(s.parts[i].rows); n > inlineProducers {
			return nil, false
		}
	}
	out := make(map[string]producerRow, n)
	for i := range s.parts {
		for r := range s.parts[i].all {
			if r.name.from != s.own {
				return nil, false
			}
			out[hex.EncodeToString(r.name.instance[:])] = r.producerRow
		}
	}
	return out, true
}

// restore takes over what a checkpoint says, and the records of parts that it refers to, by their
// keys. It returns how many of these are gone, as when records of the changelog were deleted.
func (s *producers) restore(c *checkpoint, written map[string][]byte) (gone int, err error) {
	for text, row := range c.Producers {
		instance, err := hex.DecodeString(text)
		if err != nil {
			return 0, fmt.Errorf("checkpoint record: producer %q: %w", text, err)
		}
		s.put(producerName{instanceName(instance), s.own}, row)
	}
	if c.ProducerParts != nil && len(c.ProducerParts) != producerParts {
		return 0, fmt.Errorf("%w: a checkpoint with %d parts of producers", ErrNewerFormat, len(c.ProducerParts))
	}
	for i := range s.parts {
		p := &s.parts[i]
		for _, value := range [][]byte{written[partKey(i, 0)], written[partKey(i, 1)]} {
			version, rows, err := readPart(value)
			switch {
			case value == nil:
			case err != nil:
				return 0, fmt.Errorf("part %d of the producers: %w", i, err)
			case c.ProducerParts == nil:
				// Of a cut without a checkpoint, or of before there were few: to be replaced.
				p.version, p.changed = max(p.version, version), true
			case version == c.ProducerParts[i]:
				for j := range rows {
					s.put(rows[j].name, rows[j].producerRow)
				}
				p.version, p.changed = version, false
			}
		}
		if c.ProducerParts != nil && p.version != c.ProducerParts[i] {
			p.version = c.ProducerParts[i]
			gone++
		}
	}
	return gone, nil
}
