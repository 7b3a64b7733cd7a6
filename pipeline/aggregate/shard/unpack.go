package shard

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/wire"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// ErrRulesBehind says that another partition counts by newer rules, which this one has to get before it
// goes on: it is to be taken over again.
var ErrRulesBehind = errors.New("shard: an event was forwarded by newer rules")

// isPack reports whether a loop record holds a pack.
func isPack(value []byte) bool {
	return len(value) > 1 && value[0] == loopVersion && value[1] == loopKindPack
}

// errPack says that a pack is not one that a partition has made.
var errPack = errors.New("a pack of forwarded events that is cut short, or contradicts itself")

// unpacking is a pack that is being read. Its lists are used again for the next one.
type unpacking struct {
	wire.Reader
	text   string       // the whole record: ids are parts of it
	from   origin       // of the last entry
	sum    event.Micros // of the differences between the entries' broker times
	broker event.Micros // of the last entry
	by     int64        // the version of the rules that it was made by
	behind bool         // these may have limits that the present ones have yet to get
	now    *Rules
	sets   []unpackedSet
	keys   []unpackedKey
	own    []rules.Hit // of all sets
	places []int       // of own's hits in the lists as they were sent
	hits   []rules.Hit // of a key, with its amounts
}

// unpackedSet is a list of limits.
type unpackedSet struct {
	size       int // as it was sent
	begin, end int // in own, which has those that the present rules have got
}

type unpackedKey struct {
	set  int
	text []byte
}

// packRecord counts what a pack has of events that have not come before.
func (in *intake) packRecord(rec *record.Record) error {
	u := &in.unpacking
	u.begin(rec.Value, &in.rules.Rules)
	u.behind = in.rules.mayBeBehind(in.log.cfg.Settled, rec, u.by)
	for place := 0; !u.Bad && len(u.Buf) > 0; place++ {
		if err := in.unpackEvent(u, rec, place); err != nil {
			return err
		}
	}
	if u.Bad { // what stands before is counted
		in.log.deadLetter(Loop, rec, nil, errPack)
	}
	return nil
}

func (u *unpacking) begin(value []byte, now *Rules) {
	u.now = now
	u.Reader = wire.Reader{Buf: value[2:]}
	u.text = string(value)
	u.from = origin{generation: uint32(u.Uvarint()), partition: int32(u.Uvarint())}
	u.by = int64(u.Uvarint())
	u.sum = 0
	u.sets, u.keys, u.own, u.places = u.sets[:0], u.keys[:0], u.own[:0], u.places[:0]
}

// forget drops what it refers to of the last pack.
func (u *unpacking) forget() {
	u.Buf, u.text = nil, ""
	clear(u.keys[:cap(u.keys)])
}

// unpackEvent gathers an event's steps, unless it has come before.
func (in *intake) unpackEvent(u *unpacking, rec *record.Record, place int) error {
	u.from.offset += int64(u.Uvarint())
	u.from.index = int(u.Uvarint())
	u.sum += event.Micros(u.Varint()) // it wraps around to NoTime and back
	u.broker = u.sum.Clamp()
	at := (u.sum + event.Micros(u.Varint())).Clamp()
	id := u.string()
	keys := u.Uvarint()
	if u.Bad || keys == 0 || at == event.NoTime || !u.from.valid() {
		u.Bad = true
		return nil
	}
	step := gatheredStep{
		id: id, at: at, broker: u.broker, source: Loop, place: applied{rec.Offset + 1, place},
		cause: verdict.Cause{ID: id, Partition: u.from.partition, Offset: u.from.offset},
	}
	in.log.broker, in.log.last[Loop] = max(in.log.broker, u.broker), u.broker
	again := in.origins[u.from.partition].covers(u.from)
	if again {
		in.log.tally.Replayed++
	}
	before := in.gathered.mark()
	for range keys {
		w, err := u.work()
		if u.Bad || err != nil {
			in.gathered.cut(before) // an event counts on all of its keys, or on none
			return err
		}
		if !again && len(w.Hits) > 0 {
			in.gathered.add(&w, &step)
		}
	}
	if !again {
		in.origins[u.from.partition] = seen{applied{u.from.offset + 1, u.from.index}, u.from.generation}
	}
	return nil
}

// work reads a key and what counts on it.
func (u *unpacking) work() (w rules.Work, err error) {
	n := u.Uvarint()
	if n == 0 {
		if err := u.newKey(); err != nil || u.Bad {
			return w, err
		}
		n = uint64(len(u.keys))
	}
	if n > uint64(len(u.keys)) {
		u.Bad = true
		return w, nil
	}
	key := &u.keys[n-1]
	set := &u.sets[key.set]
	w.Key, w.Hits = key.text, u.amounts(set)
	if len(w.Hits) > 0 {
		w.Shape = w.Hits[0].Limit.Rule.Shape
	}
	return w, nil
}

func (u *unpacking) newKey() error {
	set := u.Uvarint()
	if set == 0 {
		if err := u.set(); err != nil || u.Bad {
			return err
		}
		set = uint64(len(u.sets))
	}
	text := u.Bytes()
	if set > uint64(len(u.sets)) || len(text) == 0 {
		u.Bad = true
		return nil
	}
	u.keys = append(u.keys, unpackedKey{int(set - 1), text})
	return nil
}

// unpackedHit is a hit under a limit before its amounts are read. Senders forward an event whole if a limit asks more
// of it. Rules by which this one does not are older ones: they do not say which tier the event has, and the
// key keeps its own.
func unpackedHit(limit *rules.Limit) rules.Hit {
	h := rules.Hit{Limit: limit, Amount: event.One, Cost: event.One}
	if !h.IsPlain() {
		h.Tier = rules.KeepTier
	}
	return h
}

// mayBeBehind reports whether a pack may name limits that are newer than the present rules. A version is one of a life
// of the rules topic: those of another life say nothing by their numbers. What the repartition topic had before
// the newest rules were read was made by these, or by older ones: those of a topic that is no more.
func (r *Rules) mayBeBehind(settled Settled, rec *record.Record, by int64) bool {
	other := false
	for headers := rec.Headers; !other; {
		key, value, ok := headers.Next()
		if !ok {
			break
		}
		if string(key) == HeaderRules && len(value) == 8 {
			made := binary.BigEndian.Uint64(value)
			other = made != 0 && r.Published != 0 && !protocol.SameTopic(made, r.Published)
		}
	}
	known := rec.Offset < settled.Below
	switch {
	case other:
		return !known
	case by <= r.Number:
		return false
	default: // one that does not compile here is known, too
		return !known || by <= settled.Newest
	}
}

// set looks a list of limits up. One that older rules had counts nowhere any more.
func (u *unpacking) set() error {
	var hash rules.SectionHash
	size := u.Uvarint()
	if size > uint64(len(u.Buf)/len(hash)) {
		u.Bad = true
		return nil
	}
	begin := len(u.own)
	for place := range int(size) {
		u.Buf = u.Buf[copy(hash[:], u.Buf):]
		if limit := u.now.Set.LimitOf(hash); limit != nil {
			u.own = append(u.own, unpackedHit(limit))
			u.places = append(u.places, place)
		} else if u.behind {
			return fmt.Errorf("%w: their version is %d, this partition's %d", ErrRulesBehind, u.by, u.now.Number)
		}
	}
	u.sets = append(u.sets, unpackedSet{int(size), begin, len(u.own)})
	return nil
}

// amounts reads what counts under a list of limits.
func (u *unpacking) amounts(set *unpackedSet) []rules.Hit {
	u.hits = append(u.hits[:0], u.own[set.begin:set.end]...)
	places := u.places[set.begin:set.end]
	form := u.Uvarint()
	if form == amountsOne {
		return u.hits
	}
	next := 0
	for place := range set.size {
		amount := event.Decimal(u.Uvarint())
		u.Bad = u.Bad || amount < 0
		if next < len(places) && places[next] == place {
			u.hits[next].Amount = amount
			next++
		}
	}
	if form == amountsValues && len(u.Buf) >= 8*set.size {
		for i, place := range places {
			u.hits[i].Value = binary.LittleEndian.Uint64(u.Buf[8*place:])
		}
		u.Buf = u.Buf[8*set.size:]
	} else if form != amountsGiven {
		u.Bad = true
	}
	return u.hits
}

// string takes a byte string as a part of the record's text.
func (u *unpacking) string() string {
	b := u.Bytes()
	end := len(u.text) - len(u.Buf)
	return u.text[end-len(b) : end]
}
