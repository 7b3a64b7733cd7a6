package shard

import (
	"encoding/json"

	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// issuing has the keys' states, and the verdicts on their way out.
type issuing struct {
	base
	table  *state.Table
	issued issuedVerdicts
	moved  movedEnds
	levels levels

	notify map[string][]byte // by verdicts' names: what the audit says of those that people are told

	announced  announcement
	granted    *protocol.Grants // which Redis the changelog names; nil for none
	lastGrants *protocol.Grants // that at the takeover
}

// Keys is how many keys there are.
func (s *issuing) Keys() int { return s.table.Len() }

// Bytes is how much memory the keys take.
func (s *issuing) Bytes() int64 { return s.table.Bytes() }

// issue writes a key's state through with the verdicts that changed, outside any checkpoint.
func (s *issuing) issue(ref state.Ref, changes []verdict.Verdict, broker event.Micros) {
	s.issueThen(ref, changes, broker, aftermath{})
}

// aftermath is what follows behind the verdicts that a state record makes durable, in this order.
type aftermath struct {
	level *protocol.Level
	erase [][]byte // record keys that get tombstones
	gone  bool     // so does the level
	done  *Done
	trace *Traced // of the verdicts; nil for none
}

// issueThen is issue, with what follows.
func (s *issuing) issueThen(ref state.Ref, changes []verdict.Verdict, broker event.Micros, then aftermath) {
	key := string(s.table.Key(ref))
	s.overtake(key, changes, len(then.erase) > 0)
	if len(changes) > 1 {
		changes = lastOfEach(changes)
	}
	list := make([]*issued, len(changes))
	for i := range changes {
		v := cloneVerdict(&changes[i])
		v.Trace = then.trace.span(i)
		list[i] = &issued{unpublished: unpublished{seq: -1, body: verdict.AppendJSON(nil, &v)}, v: v, broker: broker, traced: then.trace}
	}
	if len(list) > 0 {
		s.issued[key] = append(s.issued[key], list...)
	}
	rec := s.stateRecord(new([]byte), ref)
	s.table.Copied(ref)
	rec.Urgent, rec.Ack = true, &Ack{key: key, verdicts: list, level: then.level, erase: then.erase, gone: then.gone, done: then.done}
	if then.level != nil {
		s.asks(key)
	}
	s.out.States = append(s.out.States, rec)
}

// overtake lets what waits of a key give way to what goes out.
func (s *issuing) overtake(key string, changes []verdict.Verdict, erased bool) {
	if s.moved.n == 0 {
		return
	}
	if erased {
		s.moved.forget(key)
	}
	for i := range changes {
		if s.moved.overtaken(key, &changes[i]) {
			s.tally.Overtaken++
		}
	}
}

// stateRecord copies a key's state, with its unpublished verdicts, into a changelog record. Its
// memory is taken off space, which is renewed when it does not suffice.
func (s *issuing) stateRecord(space *[]byte, ref state.Ref) Append {
	key, raw := s.table.Key(ref), s.table.Block(ref)
	pending := s.moved.of(key, s.issued.of(key))
	need := len(key) + wireBytes(pending, raw)
	if cap(*space)-len(*space) < need {
		*space = make([]byte, 0, max(need, cap(*space)))
	}
	start := len(*space)
	buf := (*space)[start : start : start+need]
	buf = append(buf, key...)
	buf = appendWire(buf, pending, raw)
	*space = (*space)[:start+need]
	k := len(key)
	return Append{Key: buf[:k:k], Value: buf[k:]}
}

// Acked takes in that an append with this Ack is durable at an offset.
func (s *issuing) Acked(a *Ack, offset int64, clock Clock) {
	switch {
	case a.is != nil:
		if s.issued.remove(a.key, a.is) {
			s.table.Touch([]byte(a.key)) // its mark can be dropped
		}
		s.out.Published = append(s.out.Published, Published{Offset: offset, Key: a.record.Key, Value: a.record.Value, At: clock.Local, Verdict: a.is.v, Broker: a.is.broker, Traced: a.is.traced})
	case a.erased:
		s.out.Published = append(s.out.Published, Published{Offset: offset, Key: a.record.Key, At: clock.Local, Broker: event.NoTime})
	case a.left != nil:
		v := *a.left
		v.Seq = offset
		s.out.Published = append(s.out.Published, Published{Offset: offset, Key: a.record.Key, Value: a.record.Value, At: clock.Local, Verdict: v, Broker: event.NoTime})
	case a.grants != nil:
		s.grantedDurable(a.grants)
	case a.saying != nil:
		s.announced.says(a.saying)
		s.appendOwn(&protocol.Record{Version: a.saying.number}, &Ack{says: a.saying})
	case a.own != nil:
		if a.says != nil {
			s.announced.said = *a.says
		}
		s.out.Strict = append(s.out.Strict, Strict{Offset: offset, Record: *a.own})
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
		is.traced.durable(clock)
		if a.done != nil {
			a.done.Verdicts = append(a.done.Verdicts, is.v)
		}
	}
	// done goes with the last of them: one writer appends them, in order.
	left := len(a.verdicts) + len(a.erase)
	for _, one := range []bool{a.level != nil, a.gone} {
		if one {
			left++
		}
	}
	all := left
	then := func() *Done {
		if left--; left > 0 {
			return nil
		}
		return a.done
	}
	for _, is := range a.verdicts {
		s.publish(a.key, is, then(), clock)
	}
	if a.level != nil {
		s.levelDurable(a.level, seq, then())
	}
	for _, recordKey := range a.erase {
		s.erase(recordKey, then())
	}
	if a.gone {
		s.appendOwn(&protocol.Record{Gone: a.key}, &Ack{done: then()})
	}
	if a.done != nil && all == 0 {
		s.out.Done = append(s.out.Done, *a.done)
	}
}

// publish asks for a durable verdict in the verdict topic and in the audit.
func (s *issuing) publish(key string, is *issued, done *Done, clock Clock) {
	rec := Append{Key: verdict.AppendRecordKey(nil, &is.v), Value: verdict.AppendJSON(nil, &is.v), Urgent: true}
	s.out.Aux = append(s.out.Aux, Aux{Topic: Audit, Key: rec.Key, Value: appendAudit(nil, clock.Local, s.by, rec.Value, s.notify[is.v.Rule])})
	rec.Ack = &Ack{key: key, is: is, done: done, record: rec}
	s.out.Verdicts = append(s.out.Verdicts, rec)
}

// erase asks for a tombstone in the verdict topic.
func (s *issuing) erase(recordKey []byte, done *Done) {
	rec := Append{Key: recordKey, Urgent: true}
	rec.Ack = &Ack{erased: true, done: done, record: rec}
	s.out.Verdicts = append(s.out.Verdicts, rec)
}

// appendAudit appends a line of the audit topic. by is a JSON string, notify JSON or nothing. It is
// written by hand: in an attack there is one a verdict, and encoding/json would check and copy the
// verdict.
func appendAudit(dst []byte, at event.Micros, by, body, notify []byte) []byte {
	dst = append(dst, `{"type":"verdict","at":"`...)
	dst = at.AppendTo(dst)
	dst = append(dst, `","by":`...)
	dst = append(dst, by...)
	if len(notify) > 0 {
		dst = append(append(dst, `,"notify":`...), notify...)
	}
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
