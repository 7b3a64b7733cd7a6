package shard

import (
	"encoding/json"
	"fmt"

	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/event"
)

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

// LastGrants says which Redis may have granted permits when the partition was taken over, without
// until when; nil when none has.
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
