package shard

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// The parts of the table of producers are records of their own in the changelog, under two keys
// each, in turns. A checkpoint names the version of each part that belongs to it. It is as of the
// checkpoint's cut: a newer one would have a new owner drop events that no state has yet, and so
// the one before stays until the next checkpoint is durable.

const partPrefix = "\x00producers/"

func partKey(part int, version uint64) string {
	return fmt.Sprintf("%s%02d/%d", partPrefix, part, version%2)
}

func isPart(key []byte) bool { return strings.HasPrefix(string(key), partPrefix) }

// ProducerParts is how many parts the table of producers has.
const ProducerParts = producerParts

// inlineProducers is how many rows a checkpoint record holds itself, as those of older programs do.
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

// ProducerPart asks for part i of the table of producers to be written, if it had changed at the
// last cut. It is called for each part before End.
func (c *Cut) ProducerPart(i int, clock Clock) {
	part := &c.shard.intake.producers.parts[i]
	if !part.due {
		return
	}
	value := part.copied
	if value == nil {
		value = part.append(nil, c.shard.log.Time(clock)-forgetProducers)
	}
	part.due, part.copied = false, nil
	c.shard.log.out.States = append(c.shard.log.out.States, Append{Key: []byte(partKey(i, part.version)), Value: value})
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
