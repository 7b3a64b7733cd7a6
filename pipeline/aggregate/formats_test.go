package aggregate

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// What a newer program might write: each of its records has today's form, except for one version.
// An older program refuses it, says so, and leaves everything as it is.
func TestWhatANewerProgramWroteIsRefused(t *testing.T) {
	newer := map[string]func(t *testing.T, state []byte) fenced.Record{
		"record":     func(_ *testing.T, state []byte) fenced.Record { state[0]++; return stateOf(state) },
		"block":      func(_ *testing.T, state []byte) fenced.Record { state[2]++; return stateOf(state) },
		"state":      func(t *testing.T, state []byte) fenced.Record { state[stateIn(t, state)]++; return stateOf(state) },
		"window":     newerWindow,
		"checkpoint": newerCheckpoint,
	}
	for name, change := range newer {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, r *rig) {
				set := compile(t, yearly)
				m := r.begin(set)
				r.emit(hit("u1", "a.b"), hit("u1", "a.b"))
				eventually(t, "two are counted", func() bool { return r.count("u1", "per-year", m) == 2*event.One })
				m.end(t)
				id := event.Partition([]byte("u1"), rigPartitions)
				var state []byte
				for _, rec := range r.records(r.names.Table, id) {
					if string(rec.Key) == "uid=u1" {
						state = rec.Value
					}
				}
				rec := change(t, state)
				r.memory.Append(r.names.Table, id, kafkalog.Record{Key: rec.Key, Value: rec.Value})
				before := r.kept(id)
				m = r.start(set)
				eventually(t, "it refuses", func() bool { return m.fatal() != nil })
				m.end(t)
				where := fmt.Sprintf("changelog record %s/%d at %d: ", r.names.Table, id, before[len(before)-1].Offset)
				if err := m.fatal(); !strings.Contains(err.Error(), "newer") || !strings.Contains(err.Error(), where) {
					t.Errorf("it does not say %q, but: %v", where, err)
				}
				if after := r.kept(id); !slices.EqualFunc(before, after, sameRecord) {
					t.Errorf("%d records are there, of %d that were", len(after), len(before))
				}
			})
		})
	}
}

func stateOf(value []byte) fenced.Record { return fenced.Record{Key: []byte("uid=u1"), Value: value} }

// stateIn finds the state of package rules in a changelog record without unpublished verdicts.
func stateIn(t *testing.T, value []byte) int {
	unpublished, state, err := shard.ParseState(value)
	if err != nil || unpublished > 0 {
		t.Fatal(unpublished, err)
	}
	return len(value) - len(state)
}

// newerWindow raises the version of a calendar window's counter, the last in its state.
func newerWindow(t *testing.T, state []byte) fenced.Record {
	const calendar = 0x12
	i := bytes.LastIndexByte(state, calendar)
	if i < stateIn(t, state) {
		t.Fatalf("no counter in %x", state)
	}
	state[i] += 0x10
	return stateOf(state)
}

func newerCheckpoint(*testing.T, []byte) fenced.Record {
	return fenced.Record{Key: []byte(shard.CheckpointKey), Value: []byte(`{"version":2}`)}
}

// asOwner is the configuration by which an aggregator takes a partition over.
func (r *rig) asOwner(partition int32) fenced.Config {
	link := fenced.NewLink(r.client)
	r.t.Cleanup(link.Close)
	return fenced.Config{TransactionalID: fmt.Sprintf("%s-%d", r.names.Group, partition), Urgent: link}
}

// kept returns a changelog's records without fences.
func (r *rig) kept(id int32) []*sarama.ConsumerMessage {
	return slices.DeleteFunc(r.records(r.names.Table, id), func(m *sarama.ConsumerMessage) bool { return fenced.IsFence(m.Key) })
}

func sameRecord(a, b *sarama.ConsumerMessage) bool {
	return a.Offset == b.Offset && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value)
}

// A forward in a newer form is not a dead letter: the program that can read it will read it.
func TestANewerForwardIsRefused(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		set := compile(t, byIPAndUID)
		m := r.begin(set)
		e := hit("u1", "a.b")
		e.IP = ipOf(1)
		// 9: a kind that this program does not know.
		forward := append([]byte{1, 9, 1, 7, 0, 0}, event.AppendJSON(nil, e)...)
		r.emitTo(r.names.Loop, 2, string(forward))
		eventually(t, "it refuses", func() bool { return m.fatal() != nil })
		m.end(t)
		if err := m.fatal(); !strings.Contains(err.Error(), "newer") {
			t.Errorf("it says: %v", err)
		}
		if n := r.letters(); n != 0 {
			t.Errorf("%d dead letters", n)
		}
		again := r.start(set)
		eventually(t, "it refuses again: nothing was passed over", func() bool { return again.fatal() != nil })
		again.end(t)
	})
}

// A fence record as the first version wrote it. Every later version must read it.
func TestTheFirstFencesAreRead(t *testing.T) {
	if f, err := fenced.ParseFence([]byte(`{"id":"g-0","pid":3,"epoch":4,"at":"2026-11-21T10:00:00Z"}`)); !fenced.IsFence([]byte("\x00fence")) ||
		err != nil || f != (fenced.FenceRecord{TransactionalID: "g-0", ProducerID: 3, Epoch: 4, At: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}) {
		t.Errorf("fence: %+v, %v", f, err)
	}
}
