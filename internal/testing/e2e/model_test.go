package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// model is the whole engine on one page: every record once, in its partition's order, one
// state a key in a map. What the engine's crashes, owners and checkpoints do to it is nothing.
type model struct {
	set     *rules.Set
	matcher *rules.Matcher
	stepper *rules.Stepper
	permits *rules.Permits // nil: no rule is strict
	decoder event.Decoder
	forgets bool // keys that nothing is held of may have left the engine

	seen   map[string]bool   // emitters' instances and sequences, by partition
	newest map[string]uint64 // of each emitter, by partition
	// Records that came for the first time behind a newer one of their emitter.
	behind []string
	states map[string]*keyState // by key text
	// Of all events: the model does without the rules' memory of them.
	ids      map[string]bool
	again    int                          // events whose id had come before
	lostOnes int                          // permits that count by themselves, each as often as it was said
	events   int                          // that are not too old, nor had come before
	issued   map[string][]verdict.Verdict // all verdicts of a record key, in order
}

// keyState is a key and what it has counted.
type keyState struct {
	dims  []event.Dim
	raw   []byte
	from  int32 // the partition that its first event came from
	mixed bool  // others came from elsewhere, in an order that only the engine knows
}

// newModel reads the event topic. Partitions are interleaved as the broker got their records.
func newModel(r *rig) *model {
	r.t.Helper()
	m := &model{set: r.set, matcher: r.set.NewMatcher(), stepper: r.set.NewStepper(), permits: r.set.NewPermits(),
		seen: map[string]bool{}, newest: map[string]uint64{}, ids: map[string]bool{}, states: map[string]*keyState{}, issued: map[string][]verdict.Verdict{}}
	parts := make([][]*sarama.ConsumerMessage, r.partitions)
	for p := range r.partitions {
		r.records(r.names.Events, p, func(rec *sarama.ConsumerMessage) { parts[p] = append(parts[p], rec) })
	}
	if m.permits != nil {
		parts = append(parts, lostPermits(r)...)
	}
	for {
		next := -1
		for p, recs := range parts {
			if len(recs) > 0 && (next < 0 || recs[0].Timestamp.Before(parts[next][0].Timestamp)) {
				next = p
			}
		}
		if next < 0 {
			break
		}
		if rec := parts[next][0]; rec.Topic == r.names.Loop {
			m.lost(rec)
		} else {
			m.record(rec)
		}
		parts[next] = parts[next][1:]
	}
	r.t.Logf("the model has %d events, %d keys, and %d keys and rules with verdicts; %d times a lost permit was named", m.events, len(m.states), len(m.issued), m.lostOnes)
	return m
}

func (m *model) record(rec *sarama.ConsumerMessage) {
	if repeat := repeatKey(rec); repeat != "" {
		if m.seen[repeat] {
			return
		}
		m.seen[repeat] = true
		m.inOrder(rec)
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
		in := rules.Input{At: at, ID: e.ID, Cause: verdict.Cause{ID: e.ID, Partition: rec.Partition, Offset: rec.Offset}}
		if m.permits != nil && e.Permit.ID != "" {
			m.permitted(e, broker, in)
			continue
		}
		for _, w := range m.matcher.Match(e, at) {
			m.step(&w, in)
		}
	}
}

// inOrder notes a record that came behind a newer one of its emitter: the engine takes it for a
// repeat, and it counts nowhere.
func (m *model) inOrder(rec *sarama.ConsumerMessage) {
	seq, _ := event.ParseSequence([]byte(header(rec, event.HeaderSequence)))
	from := fmt.Sprintf("%d/%x", rec.Partition, header(rec, event.HeaderInstance))
	if newest := m.newest[from]; seq < newest {
		m.behind = append(m.behind, fmt.Sprintf("%s at %d has sequence %d, behind %d", from, rec.Offset, seq, newest))
	}
	m.newest[from] = max(seq, m.newest[from])
}

// compareOrder: an emitter's records come in the order of their sequences, repeats aside.
func (m *model) compareOrder(t *testing.T) {
	t.Helper()
	d := differencesOf("the order of emitters' records")
	d.all = len(m.seen)
	for _, what := range m.behind {
		d.add("%s", what)
	}
	d.report(t)
}

func (m *model) step(w *rules.Work, in rules.Input) {
	k := m.states[string(w.Key)]
	if k == nil {
		dims, err := event.ParseKey(w.Key)
		if err != nil {
			panic(err) // the Matcher wrote it
		}
		k = &keyState{dims: dims, from: in.Cause.Partition}
		m.states[string(w.Key)] = k
	}
	k.mixed = k.mixed || k.from != in.Cause.Partition
	in.Key, in.Hits = w.Key, w.Hits
	next, res := m.stepper.Step(nil, k.raw, in)
	k.raw = next
	for i := range res.Changes {
		v := res.Changes[i]
		v.Key, v.APIs = slices.Clone(v.Key), slices.Clone(v.APIs)
		key := string(verdict.AppendRecordKey(nil, &v))
		m.issued[key] = append(m.issued[key], v)
	}
}

// last returns the latest verdict of every record key.
func (m *model) last() map[string]verdict.Verdict {
	out := make(map[string]verdict.Verdict, len(m.issued))
	for key, all := range m.issued {
		out[key] = all[len(all)-1]
	}
	return out
}

// orderly reports whether the order of events, of a minute or two, makes no difference under a
// limit in the end. Where events begin or reset a window, or tell another limit, it does: whether there
// is a verdict in between depends on it.
func (m *model) orderly(limit string) bool {
	for _, l := range m.set.Limits {
		if l.Name == limit {
			return l.PerMin >= event.Hour && l.Told == nil && !l.Window.Kind.Follows() && !strings.HasPrefix(limit, "in-a-row")
		}
	}
	return false
}

// comparable reports whether the engine must have the model's verdicts of a record key.
func (m *model) comparable(recordKey string) bool {
	text, limit, _ := strings.Cut(recordKey, "|")
	k := m.states[text]
	return k == nil || !k.mixed || m.orderly(limit)
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
