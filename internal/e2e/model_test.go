package e2e

import (
	"fmt"
	"maps"
	"slices"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// model is the whole engine on one page: every record once, in its partition's order, one
// state a key in a map. What the engine's crashes, owners and checkpoints do to it is nothing.
type model struct {
	set     *rules.Set
	matcher *rules.Matcher
	stepper *rules.Stepper
	decoder event.Decoder

	seen   map[string]bool              // emitters' instances and sequences, by partition
	states map[string]*keyState         // by key text
	ids    map[string]bool              // of all events: the model does without the rules' memory of them
	again  int                          // events whose id had come before
	events int                          // that are not too old, nor had come before
	fell   map[string][]verdict.Verdict // all verdicts of a record key, in order
}

// keyState is a key and what it has counted.
type keyState struct {
	dims []event.Dim
	raw  []byte
	uid  bool // the key has a uid: all its events come from one partition, in order
}

// newModel reads the event topic.
func newModel(r *rig) *model {
	r.t.Helper()
	m := &model{set: r.set, matcher: r.set.NewMatcher(), stepper: r.set.NewStepper(),
		seen: map[string]bool{}, ids: map[string]bool{}, states: map[string]*keyState{}, fell: map[string][]verdict.Verdict{}}
	for p := range int32(partitions) {
		r.records(r.names.Events, p, func(rec *sarama.ConsumerMessage) { m.record(rec) })
	}
	r.t.Logf("the model has %d events, %d keys, and %d keys and rules with verdicts", m.events, len(m.states), len(m.fell))
	return m
}

func (m *model) record(rec *sarama.ConsumerMessage) {
	if repeat := repeatKey(rec); repeat != "" {
		if m.seen[repeat] {
			return
		}
		m.seen[repeat] = true
	}
	broker := event.FromTime(rec.Timestamp)
	events, _ := m.decoder.Decode(rec.Value, nil, rec.Key, nil) // what is bad in it counts nothing
	for i := range events {
		e := &events[i]
		at, ok := m.set.EventTime(e, broker)
		if !ok {
			continue
		}
		if e.ID != "" {
			if m.ids[e.ID] {
				m.again++
				continue
			}
			m.ids[e.ID] = true
		}
		m.events++
		for _, w := range m.matcher.Match(e, at) {
			m.step(&w, e, at, verdict.Cause{ID: e.ID, Partition: rec.Partition, Offset: rec.Offset})
		}
	}
}

func (m *model) step(w *rules.Work, e *event.Event, at event.Micros, cause verdict.Cause) {
	k := m.states[string(w.Key)]
	if k == nil {
		dims, err := event.ParseKey(w.Key)
		if err != nil {
			panic(err) // the Matcher wrote it
		}
		k = &keyState{dims: dims, uid: w.Shape.HasUID}
		m.states[string(w.Key)] = k
	}
	next, res := m.stepper.Step(nil, k.raw, rules.Input{Key: w.Key, Hits: w.Hits, At: at, ID: e.ID, Cause: cause})
	k.raw = next
	for i := range res.Changes {
		v := res.Changes[i]
		v.Key, v.APIs = slices.Clone(v.Key), slices.Clone(v.APIs)
		key := string(verdict.AppendRecordKey(nil, &v))
		m.fell[key] = append(m.fell[key], v)
	}
}

// last returns the latest verdict of every record key.
func (m *model) last() map[string]verdict.Verdict {
	out := make(map[string]verdict.Verdict, len(m.fell))
	for key, all := range m.fell {
		out[key] = all[len(all)-1]
	}
	return out
}

func (m *model) keys() []string { return slices.Sorted(maps.Keys(m.states)) }

// repeatKey names a record that an emitter numbered; "" for others.
func repeatKey(rec *sarama.ConsumerMessage) string {
	instance, seq := header(rec, event.HeaderInstance), header(rec, event.HeaderSequence)
	if instance == "" || seq == "" {
		return ""
	}
	return fmt.Sprintf("%d/%x/%x", rec.Partition, instance, seq)
}

// header returns a header's value.
func header(m *sarama.ConsumerMessage, name string) string {
	for _, h := range m.Headers {
		if string(h.Key) == name {
			return string(h.Value)
		}
	}
	return ""
}
