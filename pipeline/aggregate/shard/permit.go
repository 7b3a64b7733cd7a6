package shard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

func clone(s string) string { return strings.Clone(s) }

// occurrence is an event as it came, for the steps that it makes.
type occurrence struct {
	gatheredStep // what is the same on all keys
	event        *event.Event
	counts       bool // its own time is one to count at
}

// permitKeys are the keys that an event's permit was granted for.
func (in *intake) permitKeys(e *event.Event, broker event.Micros) []rules.PermitKey {
	if in.rules.permits == nil || e.Permit.ID == "" {
		return nil
	}
	keys, ahead := in.rules.permits.Keys(e, broker)
	if ahead {
		in.log.tally.PermitsAhead++
	}
	for i := range keys {
		if keys[i].TooLate {
			in.log.tally.PermitsTooOld++
			break
		}
	}
	return keys
}

// gather gathers an event's steps on the keys of this partition. It returns targets with the other
// partitions to which the event matters: it counts there, or settles a permit.
func (in *intake) gather(o *occurrence, works []rules.Work, permits []rules.PermitKey, targets []int32) []int32 {
	for i := range works {
		w := &works[i]
		switch owner := in.log.cfg.owner(w); {
		case owner != in.log.cfg.ID:
			if !slices.Contains(targets, owner) {
				targets = append(targets, owner)
			}
		case o.counts && len(permits) == 0:
			in.gathered.add(w, &o.gatheredStep)
		default:
			in.gatherWork(o, w, permits)
		}
	}
	for i := range permits {
		p := &permits[i]
		if p.TooLate || counted(works, p.Key) {
			continue
		}
		w := rules.Work{Key: p.Key, Hash: p.Hash}
		if owner := in.log.cfg.owner(&w); owner == in.log.cfg.ID {
			step := o.gatheredStep
			step.id, step.permit, step.at = "", o.event.Permit.ID, o.timeFor(p)
			in.gathered.add(&w, &step)
		} else if !slices.Contains(targets, owner) {
			targets = append(targets, owner)
		}
	}
	return targets
}

// gatherWork gathers an event's step on a key that it counts under, when there are permits or its own
// time is none to count at.
func (in *intake) gatherWork(o *occurrence, w *rules.Work, permits []rules.PermitKey) {
	step := o.gatheredStep
	for i := range permits {
		p := &permits[i]
		if !bytes.Equal(p.Key, w.Key) {
			continue
		}
		if p.TooLate { // the action counts by its permit, which is lost
			w.Hits = without(w.Hits, true)
			continue
		}
		step.permit, step.at, step.permitAt = o.event.Permit.ID, o.timeFor(p), p.At
	}
	if !o.counts {
		w.Hits = without(w.Hits, false)
	}
	if o.counts || step.permit != "" {
		in.gathered.add(w, &step)
	}
}

// timeFor is the event's time on a key. Of one that is too old for all other limits it is the permit's.
func (o *occurrence) timeFor(p *rules.PermitKey) event.Micros {
	if o.counts {
		return o.at
	}
	return p.At
}

// without returns the hits without those under strict limits, or without all others.
func without(hits []rules.Hit, strict bool) []rules.Hit {
	kept := hits[:0]
	for _, h := range hits {
		if h.Limit.Strict != strict {
			kept = append(kept, h)
		}
	}
	return kept
}

func counted(works []rules.Work, key []byte) bool {
	for i := range works {
		if bytes.Equal(works[i].Key, key) {
			return true
		}
	}
	return false
}

// A permit whose action never told how it ended counts as an event of the permit's id, at the time when
// it was granted. It comes through the partition's loop, as events do, so that it counts once.

// lostRecord is such a permit in the loop topic.
type lostRecord struct {
	Key   string       `json:"key"`
	ID    string       `json:"id"`
	At    event.Micros `json:"at"`
	Parts []lostPart   `json:"parts"`
}

type lostPart struct {
	Name   string `json:"name"`   // of the limit's counters
	Amount int64  `json:"amount"` // in millionths
}

// AppendLost appends a lost permit as a record of the loop topic.
func AppendLost(dst []byte, l *protocol.Lost) ([]byte, error) {
	rec := lostRecord{Key: l.Key, ID: l.ID, At: l.At}
	for i := range l.Parts {
		if p := &l.Parts[i]; p.Kind != protocol.InFlight && !p.Returns {
			rec.Parts = append(rec.Parts, lostPart{p.Name, int64(p.Amount)})
		}
	}
	body, err := json.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("the lost permit %q: %w", l.ID, err)
	}
	return append(append(dst, loopVersion, loopKindLost), body...), nil
}

// isLost reports whether a loop record holds a lost permit.
func isLost(value []byte) bool {
	return len(value) > 1 && value[0] == loopVersion && value[1] == loopKindLost
}

// lostRecord counts a lost permit under those of its limits that there still are.
func (in *intake) lostRecord(rec *record.Record) {
	var l lostRecord
	err := json.Unmarshal(rec.Value[2:], &l)
	if err == nil && (l.Key == "" || l.ID == "") {
		err = fmt.Errorf("it has no key, or no id")
	}
	if err != nil {
		in.log.deadLetter(Loop, rec, nil, fmt.Errorf("a lost permit: %w", err))
		return
	}
	broker := BrokerTime(rec)
	in.log.broker = max(in.log.broker, broker)
	w := rules.Work{Key: []byte(l.Key)}
	for _, p := range l.Parts {
		hash, ok := limitHash(p.Name)
		if !ok {
			continue
		}
		if limit := in.rules.Set.StrictLimit(hash); limit != nil && p.Amount > 0 {
			w.Shape = limit.Rule.Shape
			w.Hits = append(w.Hits, rules.Hit{Limit: limit, Amount: event.Decimal(p.Amount), Cost: event.One, Tier: rules.KeepTier})
		}
	}
	in.gathered.add(&w, &gatheredStep{
		permit: l.ID, lost: true, at: l.At, permitAt: l.At, broker: broker, source: Loop, place: applied{rec.Offset + 1, 0},
		cause: verdict.Cause{ID: l.ID, Partition: in.log.cfg.ID, Offset: rec.Offset},
	})
}
