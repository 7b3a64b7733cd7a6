package e2e

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// What the model knows of permits. It counts a strict limit's events at their permits' times, and permits
// that are lost by their records in the loop topic, as the engine does. But a lost permit and its event
// are in two topics, and the engine reads them in an order of its own: what a strict rule counts of an
// action that failed, or whose permit a key no longer remembers, is not determined by the records. So
// strict rules are left out of the comparison. Their counters are held against the clients' own log
// instead: not above the limit, and no action left out. All other rules that count the same keys are
// compared exactly, whatever became of the permits.

// permitted makes the steps of an event with a permit.
func (m *model) permitted(e *event.Event, broker event.Micros, in rules.Input) {
	keys, _ := m.permits.Keys(e, broker)
	keys = slices.Clone(keys)
	done := map[string]bool{}
	for _, w := range m.matcher.Match(e, in.At) {
		step := in
		for _, p := range keys {
			if !bytes.Equal(p.Key, w.Key) {
				continue
			}
			done[string(w.Key)] = true
			if step.Permit = e.Permit.ID; p.TooLate {
				w.Hits = slices.DeleteFunc(slices.Clone(w.Hits), func(h rules.Hit) bool { return h.Limit.Strict })
			} else {
				step.PermitAt = p.At
			}
		}
		m.step(&w, step)
	}
	for _, p := range keys {
		if !done[string(p.Key)] { // it does not count there, and its permit is settled
			step := in
			step.ID, step.Permit = "", e.Permit.ID
			m.step(&rules.Work{Key: p.Key}, step)
		}
	}
}

// lostPermits are the records of the loop topic that tell of one.
func lostPermits(r *rig) [][]*sarama.ConsumerMessage {
	parts := make([][]*sarama.ConsumerMessage, r.partitions)
	for p := range r.partitions {
		r.records(r.names.Loop, p, func(rec *sarama.ConsumerMessage) {
			if bytes.HasPrefix(rec.Value, []byte{1, 4}) && !bytes.HasPrefix(rec.Key, []byte{0}) {
				parts[p] = append(parts[p], rec)
			}
		})
	}
	return parts
}

// lost counts a permit whose event did not come in time.
func (m *model) lost(rec *sarama.ConsumerMessage) {
	var l struct {
		Key, ID string
		At      event.Micros
		Parts   []struct {
			Name   string
			Amount int64
		}
	}
	if err := json.Unmarshal(rec.Value[2:], &l); err != nil {
		panic(err) // an owner wrote it
	}
	w := rules.Work{Key: []byte(l.Key)}
	for _, p := range l.Parts {
		var hash rules.SectionHash
		if _, err := hex.Decode(hash[:], []byte(p.Name)); err != nil {
			panic(err) // so did it here
		}
		if limit := m.set.StrictLimit(hash); limit != nil {
			w.Hits = append(w.Hits, rules.Hit{Limit: limit, Amount: event.Decimal(p.Amount), Cost: event.One, Tier: rules.KeepTier})
		}
	}
	from := rec.Partition
	if k := m.states[l.Key]; k != nil {
		from = k.from // it makes no difference to the order of events
	}
	m.step(&w, rules.Input{At: l.At, Permit: l.ID, PermitAt: l.At, Lost: true, Cause: verdict.Cause{ID: l.ID, Partition: from, Offset: rec.Offset}})
	m.lostOnes++
}

// withoutStrict leaves out the strict rules, and what is in flight.
func (m *model) withoutStrict(list []rules.Explanation) []rules.Explanation {
	strict := map[string]bool{}
	for _, r := range m.set.InFlight {
		strict[r.Name] = true
	}
	for _, l := range m.set.Limits {
		strict[l.Name] = strict[l.Name] || l.Strict
	}
	return slices.DeleteFunc(slices.Clone(list), func(x rules.Explanation) bool { return strict[x.Rule] })
}
