package shard

import (
	"encoding/json"
	"fmt"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

// A level says to those who grant permits what a key has counted under its strict limits, and which
// permits that settles. It goes to the verdict topic behind the key's state, with the state record's
// offset as its Seq.
//
// What settles a permit is in no state: an event that is read again settles its permit again, also
// where its count was applied before. So it is enough that no checkpoint covers an event before its
// level is published: BeginCheckpoint begins none while levels wait, and a checkpoint waits for what was
// asked for. A permit may so be settled twice, which changes nothing.

// Levels tells those who grant permits what keys have counted under strict limits, by which rules, and which Redis may
// grant.
type Levels struct {
	log   *Log
	rules *inUse
	table *table

	on      bool                // the rules have strict limits
	settles map[string][]string // of each key whose level is to be published: the permits
	queue   []string            // these keys, the oldest first
	asked   map[string]int      // levels that wait for their states to be durable, by key

	announced  announcement
	granted    *protocol.Grants // which Redis the changelog names; nil for none
	lastGrants *protocol.Grants // that at the takeover
}

// add notes that a key's level has changed, or that a permit of it is settled; "" is none.
func (l *Levels) add(key []byte, permit string) {
	settles, waits := l.settles[string(key)]
	switch {
	case !waits:
		if l.settles == nil {
			l.settles = map[string][]string{}
		}
		text := string(key)
		l.queue = append(l.queue, text)
		if permit != "" {
			settles = []string{clone(permit)}
		}
		l.settles[text] = settles
		l.announced.queued++
	case permit != "":
		l.settles[string(key)] = append(settles, clone(permit))
	}
}

// take takes a key's permits off what waits; the key stays in the queue.
func (l *Levels) take(key string) (settles []string, waits bool) {
	settles, waits = l.settles[key]
	delete(l.settles, key)
	return settles, waits
}

// busy reports whether a key's level is not in the queue to the verdict topic yet.
func (l *Levels) busy(key []byte) bool {
	_, waits := l.settles[string(key)]
	return waits || l.asked[string(key)] > 0
}

// Waiting reports whether Publish has something to publish.
func (l *Levels) Waiting() bool { return len(l.queue) > 0 }

// Publish asks for the levels of so many keys, each behind its state. It reports whether more
// wait.
func (l *Levels) Publish(most int) (more bool, err error) {
	n := min(most, len(l.queue))
	for _, key := range l.queue[:n] {
		settles, waits := l.take(key)
		if !waits {
			continue // a command has published it
		}
		if err := l.publishLevel(key, settles); err != nil {
			return false, err
		}
	}
	if l.queue = l.queue[n:]; len(l.queue) == 0 {
		l.queue = nil
	}
	l.announced.taken += n
	l.sayIfDue()
	return len(l.queue) > 0, nil
}

func (l *Levels) publishLevel(key string, settles []string) error {
	ref, b, known, err := l.table.lookUp([]byte(key))
	if err != nil {
		return err
	}
	if !known {
		// There is nothing but permits to settle: a level of 0 is behind any other.
		l.appendLevel(&protocol.Level{Key: key, Settles: settles}, nil)
		return nil
	}
	rec := l.table.stateRecord(new([]byte), ref)
	l.table.Copied(ref)
	rec.Urgent, rec.Ack = true, &Ack{key: key, level: l.levelOf(key, b.state, settles)}
	l.asks(key)
	l.log.out.States = append(l.log.out.States, rec)
	return nil
}

// levelOf is a key's level, as its state has it.
func (l *Levels) levelOf(key string, state []byte, settles []string) *protocol.Level {
	is := l.rules.stepper.Level(state)
	level := &protocol.Level{Key: key, Latest: is.Latest, Settles: settles, Exempt: l.rules.exempt.fromStrict(l.rules.Set, key, state)}
	if is.Latest == event.NoTime {
		level.Latest = 0
	}
	for i := range is.Limits {
		one := &is.Limits[i]
		section := protocol.Section{Name: one.Limit.Hash.String(), Level: one.Level, Tier: one.Tier}
		for _, step := range one.Steps {
			section.Steps = append(section.Steps, protocol.Step{Until: step.Until, Amount: step.Amount})
		}
		section.Steps = protocol.Coalesce(section.Steps)
		level.Sections = append(level.Sections, section)
	}
	level.Sections = append(level.Sections, l.announced.gone...)
	return level
}

// isStrict reports whether a key may have strict limits.
func (l *Levels) isStrict(key []byte) bool {
	if !l.on {
		return false
	}
	dims, err := event.ParseKey(key)
	return err == nil && l.rules.Set.StrictFor(dims)
}

// asks notes that a key's level waits for its state.
func (l *Levels) asks(key string) {
	if l.asked == nil {
		l.asked = map[string]int{}
	}
	l.asked[key]++
	l.announced.asked++
}

// levelDurable publishes a level whose state is durable at an offset.
func (l *Levels) levelDurable(level *protocol.Level, seq int64, done *Done) {
	if l.asked[level.Key]--; l.asked[level.Key] == 0 {
		delete(l.asked, level.Key)
	}
	level.Seq = seq
	l.appendLevel(level, done)
	l.announced.durable++
	l.sayIfDue()
}

// settlesAtOnce bounds the permits that a record of a level settles, so that none is larger than the topic takes.
const settlesAtOnce = 500

// appendLevel asks for a level's record, or for several of the same level where it settles many permits.
func (l *Levels) appendLevel(level *protocol.Level, done *Done) {
	for len(level.Settles) > settlesAtOnce {
		part := *level
		part.Settles, level.Settles = level.Settles[:settlesAtOnce], level.Settles[settlesAtOnce:]
		l.appendOwn(&protocol.Record{Level: &part}, &Ack{})
	}
	l.appendOwn(&protocol.Record{Level: level}, &Ack{done: done})
}

// appendOwn asks for a record about strict limits in the verdict topic.
func (l *Levels) appendOwn(r *protocol.Record, ack *Ack) {
	key, value, err := r.Encode()
	if err != nil {
		return // not reached: such values always marshal
	}
	ack.own = r
	l.log.out.Verdicts = append(l.log.out.Verdicts, Append{Key: key, Value: value, Urgent: true, Ack: ack})
}

// grantedKey is the key of the changelog's record of which Redis may have granted permits last. It is
// durable before the first grants of that Redis: who takes over knows of all permits that may be out.
const grantedKey = "\x00granted"

// It names none where only some limits may be granted: who takes over then begins again to open the memory.
type grantedRecord struct {
	Run     string `json:"run"`
	Life    string `json:"life"`
	HoldsOf uint64 `json:"holds_of,omitempty"`
	Longest int64  `json:"longest_hold,omitempty"`
}

func grantedBy(g *protocol.Grants) grantedRecord {
	if g.Hold > 0 {
		return grantedRecord{HoldsOf: g.HoldsOf, Longest: int64(g.Longest)}
	}
	return grantedRecord{g.Run, g.Life, g.HoldsOf, int64(g.Longest)}
}

// LastGrants names the Redis that may have granted permits when the partition was taken over, without until when; nil
// when none has.
func (l *Levels) LastGrants() *protocol.Grants { return l.lastGrants }

// Grant asks for a grants record in the verdict topic. It comes back in Effects.Strict.
func (l *Levels) Grant(g *protocol.Grants) error {
	if l.granted != nil && grantedBy(l.granted) == grantedBy(g) {
		l.appendOwn(&protocol.Record{Grants: g}, &Ack{})
		return nil
	}
	value, err := json.Marshal(grantedBy(g))
	if err != nil {
		return fmt.Errorf("note which Redis may grant permits: %w", err)
	}
	l.log.out.States = append(l.log.out.States, Append{Key: []byte(grantedKey), Value: value, Urgent: true, Ack: &Ack{grants: g}})
	return nil
}

// grantedDurable publishes grants that are noted in the changelog.
func (l *Levels) grantedDurable(g *protocol.Grants) {
	l.granted = g
	l.appendOwn(&protocol.Record{Grants: g}, &Ack{})
}

func (l *Levels) loadGranted(value []byte) error {
	var rec grantedRecord
	if err := json.Unmarshal(value, &rec); err != nil {
		return fmt.Errorf("%w: which Redis may grant permits: %w", ErrFinal, err)
	}
	l.lastGrants = &protocol.Grants{Run: rec.Run, Life: rec.Life, HoldsOf: rec.HoldsOf, Longest: event.Micros(rec.Longest)}
	l.granted = l.lastGrants
	return nil
}
