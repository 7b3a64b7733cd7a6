package e2e

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
)

// naive is a count that shares nothing with the engine: no decoder, no matcher, no windows,
// no deduplication of its. Per uid it adds up costs and bytes of this year.
type naive struct {
	costs, bytes map[string]int64
	ids, records map[string]bool
}

// naiveEvent is what the test's own producers write.
type naiveEvent struct {
	ID      string `json:"id"`
	UID     string `json:"uid"`
	API     string `json:"api"`
	Outcome string `json:"outcome"`
	Time    string `json:"time"`
	Cost    *int64 `json:"cost"`
	Attrs   struct {
		Bytes int64 `json:"bytes"`
	} `json:"attrs"`
}

// newNaive reads the event topic, the calendar year in UTC.
func newNaive(r *rig) *naive {
	r.t.Helper()
	n := &naive{costs: map[string]int64{}, bytes: map[string]int64{}, ids: map[string]bool{}, records: map[string]bool{}}
	for p := range r.partitions {
		r.records(r.names.Events, p, func(m *sarama.ConsumerMessage) {
			if err := n.record(m); err != nil {
				r.t.Fatalf("event record %d at %d: %v: %.200q", p, m.Offset, err, m.Value)
			}
		})
	}
	return n
}

func (n *naive) record(m *sarama.ConsumerMessage) error {
	if seq := header(m, event.HeaderSequence); seq != "" {
		if k := repeatKey(m); n.records[k] {
			return nil
		} else {
			n.records[k] = true
		}
	}
	var events []naiveEvent
	if bytes.HasPrefix(m.Value, []byte("[")) {
		if err := json.Unmarshal(m.Value, &events); err != nil {
			return err
		}
	} else {
		events = make([]naiveEvent, 1)
		if err := json.Unmarshal(m.Value, &events[0]); err != nil {
			return err
		}
	}
	for i := range events {
		if err := n.event(&events[i], m.Timestamp); err != nil {
			return err
		}
	}
	return nil
}

func (n *naive) event(e *naiveEvent, broker time.Time) error {
	if e.Outcome == "limited" {
		return nil // the rules name no outcome
	}
	at := broker
	if e.Time != "" {
		own, err := time.Parse(time.RFC3339Nano, e.Time)
		if err != nil {
			return err
		}
		if own.Before(broker.Add(-time.Hour)) {
			return nil // too old
		}
		if own.Before(broker) {
			at = own
		}
	}
	if at.UTC().Year() != time.Now().UTC().Year() {
		return nil
	}
	if e.ID != "" {
		if n.ids[e.ID] {
			return nil
		}
		n.ids[e.ID] = true
	}
	cost := int64(1)
	if e.Cost != nil {
		cost = *e.Cost
	}
	n.costs[e.UID] += cost
	if e.API == "upload.put" {
		n.bytes[e.UID] += e.Attrs.Bytes * cost
	}
	return nil
}
