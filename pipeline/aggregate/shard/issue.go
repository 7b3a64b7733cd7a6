package shard

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// A verdict and its state live and die together: the state is written first, with the verdict
// in it marked unpublished. Only when that is durable does the verdict go out, with the
// record's offset as its seq; once it is out too, the key's next write drops the mark.

// issuedVerdicts are the verdicts between the two acknowledgements, by key, oldest first.
type issuedVerdicts map[string][]*issued

type issued struct {
	unpublished
	v      verdict.Verdict
	broker event.Micros // of the event that caused it
}

// of returns a key's unpublished verdicts, oldest first.
func (m issuedVerdicts) of(key []byte) []unpublished {
	list := m[string(key)]
	if len(list) == 0 {
		return nil
	}
	out := make([]unpublished, len(list))
	for i, is := range list {
		out[i] = is.unpublished
	}
	return out
}

// remove reports whether it was the key's last one.
func (m issuedVerdicts) remove(key string, is *issued) (last bool) {
	list := m[key]
	if i := slices.Index(list, is); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) > 0 {
		m[key] = list
		return false
	}
	delete(m, key)
	return true
}

// Ack is what the acknowledgement of an Append means to the shard. Owners hand it back to Acked, and nothing else.
type Ack struct {
	key      string
	verdicts []*issued // that are durable with it, and to be published then
	erase    [][]byte  // record keys that get a tombstone in the verdict topic behind them
	is       *issued   // that is published with it
	erased   bool      // it is a tombstone
	record   Append    // of is, or the tombstone
	done     *Done     // the command that is done when all is acknowledged
}

// cloneVerdict copies what a Step's result shares with its buffers.
func cloneVerdict(v *verdict.Verdict) verdict.Verdict {
	c := *v
	c.Key = make([]event.Dim, len(v.Key))
	for i, d := range v.Key {
		c.Key[i] = event.Dim{Name: strings.Clone(d.Name), Value: strings.Clone(d.Value)}
	}
	c.APIs = slices.Clone(v.APIs)
	c.Cause.ID = strings.Clone(v.Cause.ID)
	return c
}

// lastOfEach leaves out what is replaced at once, as where a rule's window is another one and its first event is over the limit:
// what the old one had in force is cleared, and a block is issued. Both would have one seq, and readers keep what came first.
// Notices are each of their own.
func lastOfEach(changes []verdict.Verdict) []verdict.Verdict {
	replaced := func(i int) bool {
		return changes[i].State != verdict.Warn && slices.ContainsFunc(changes[i+1:], func(v verdict.Verdict) bool {
			return v.State != verdict.Warn && v.Rule == changes[i].Rule
		})
	}
	kept := changes[:0:0]
	for i := range changes {
		if !replaced(i) {
			kept = append(kept, changes[i])
		}
	}
	return kept
}

// issue writes a key's state through with the verdicts that changed, outside any checkpoint.
func (s *issuing) issue(ref state.Ref, changes []verdict.Verdict, broker event.Micros) {
	s.issueThen(ref, changes, broker, nil, nil)
}

// issueThen is issue; behind the verdicts the record keys of erase get tombstones, and then done is told.
func (s *issuing) issueThen(ref state.Ref, changes []verdict.Verdict, broker event.Micros, erase [][]byte, done *Done) {
	key := string(s.table.Key(ref))
	s.overtake(key, changes, len(erase) > 0)
	if len(changes) > 1 {
		changes = lastOfEach(changes)
	}
	list := make([]*issued, len(changes))
	for i := range changes {
		v := cloneVerdict(&changes[i])
		list[i] = &issued{unpublished: unpublished{seq: -1, body: verdict.AppendJSON(nil, &v)}, v: v, broker: broker}
	}
	if len(list) > 0 {
		s.issued[key] = append(s.issued[key], list...)
	}
	rec := s.stateRecord(new([]byte), ref)
	s.table.Copied(ref)
	rec.Urgent, rec.Ack = true, &Ack{key: key, verdicts: list, erase: erase, done: done}
	s.out.States = append(s.out.States, rec)
}

// Acked takes in that an append with this Ack is durable at an offset.
func (s *issuing) Acked(a *Ack, offset int64, clock Clock) {
	switch {
	case a.is != nil:
		if s.issued.remove(a.key, a.is) {
			s.table.Touch([]byte(a.key)) // its mark can be dropped
		}
		s.out.Published = append(s.out.Published, Published{Offset: offset, Key: a.record.Key, Value: a.record.Value, At: clock.Local, Verdict: a.is.v, Broker: a.is.broker})
	case a.erased:
		s.out.Published = append(s.out.Published, Published{Offset: offset, Key: a.record.Key, At: clock.Local, Broker: event.NoTime})
	default:
		s.stateDurable(a, offset, clock)
		return
	}
	if a.done != nil {
		s.out.Done = append(s.out.Done, *a.done)
	}
}

// stateDurable publishes what a state record at an offset has made durable.
func (s *issuing) stateDurable(a *Ack, seq int64, clock Clock) {
	for _, is := range a.verdicts {
		is.seq, is.v.Seq = seq, seq
		if a.done != nil {
			a.done.Verdicts = append(a.done.Verdicts, is.v)
		}
	}
	left := len(a.verdicts) + len(a.erase) // done goes with the last of them: they go out over one writer, in order
	then := func() *Done {
		if left--; left > 0 {
			return nil
		}
		return a.done
	}
	for _, is := range a.verdicts {
		s.publish(a.key, is, then(), clock)
	}
	for _, recordKey := range a.erase {
		s.erase(recordKey, then())
	}
	if a.done != nil && len(a.verdicts)+len(a.erase) == 0 {
		s.out.Done = append(s.out.Done, *a.done)
	}
}

// publish asks for a durable verdict in the verdict topic and in the audit.
func (s *issuing) publish(key string, is *issued, done *Done, clock Clock) {
	rec := Append{Key: verdict.AppendRecordKey(nil, &is.v), Value: verdict.AppendJSON(nil, &is.v), Urgent: true}
	s.out.Aux = append(s.out.Aux, Aux{Topic: Audit, Key: rec.Key, Value: appendAudit(nil, clock.Local, s.by, rec.Value)})
	rec.Ack = &Ack{key: key, is: is, done: done, record: rec}
	s.out.Verdicts = append(s.out.Verdicts, rec)
}

// erase asks for a tombstone in the verdict topic.
func (s *issuing) erase(recordKey []byte, done *Done) {
	rec := Append{Key: recordKey, Urgent: true}
	rec.Ack = &Ack{erased: true, done: done, record: rec}
	s.out.Verdicts = append(s.out.Verdicts, rec)
}

// appendAudit appends a line of the audit topic. by is a JSON string. It is written by hand:
// in an attack there is one a verdict, and encoding/json would check and copy the verdict.
func appendAudit(dst []byte, at event.Micros, by, body []byte) []byte {
	dst = append(dst, `{"type":"verdict","at":"`...)
	dst = at.AppendTo(dst)
	dst = append(dst, `","by":`...)
	dst = append(dst, by...)
	dst = append(dst, `,"verdict":`...)
	dst = append(dst, body...)
	return append(dst, '}')
}

func jsonString(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`) // strings always marshal
	}
	return b
}
