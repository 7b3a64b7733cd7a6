package shard

import (
	"encoding/json"
	"fmt"

	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

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
