package shard

import (
	"encoding/json"
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// Verdicts publishes verdicts, each behind the state that caused it.
type Verdicts struct {
	log    *Log
	table  *table
	levels *Levels
	by     []byte            // this program's name as a JSON string
	notify map[string][]byte // by verdicts' names: what the audit says of those that people are told
}

// issue writes a key's state through with the verdicts that changed, outside any checkpoint.
func (vs *Verdicts) issue(ref state.Ref, changes []verdict.Verdict, broker event.Micros) {
	vs.issueThen(ref, changes, broker, followUps{})
}

// followUps run, in order, after the verdicts that a state record makes durable are published.
type followUps struct {
	level *protocol.Level
	erase [][]byte // record keys that get tombstones
	gone  bool     // so does the level
	done  *Done
	trace *Traced // of the verdicts; nil for none
}

// issueThen is issue, with what follows.
func (vs *Verdicts) issueThen(ref state.Ref, changes []verdict.Verdict, broker event.Micros, then followUps) {
	key := string(vs.table.Key(ref))
	vs.overtake(key, changes, len(then.erase) > 0)
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
		vs.table.issued[key] = append(vs.table.issued[key], list...)
	}
	rec := vs.table.stateRecord(new([]byte), ref)
	vs.table.Copied(ref)
	rec.Urgent, rec.Ack = true, &Ack{key: key, verdicts: list, level: then.level, erase: then.erase, gone: then.gone, done: then.done}
	if then.level != nil {
		vs.levels.asks(key)
	}
	vs.log.out.States = append(vs.log.out.States, rec)
}

// overtake lets what waits of a key give way to what goes out.
func (vs *Verdicts) overtake(key string, changes []verdict.Verdict, erased bool) {
	if vs.table.moved.n == 0 {
		return
	}
	if erased {
		vs.table.moved.forget(key)
	}
	for i := range changes {
		if vs.table.moved.overtaken(key, &changes[i]) {
			vs.log.tally.Overtaken++
		}
	}
}

// acked goes on with what waited for an append.
func (vs *Verdicts) acked(a *Ack, offset int64, clock Clock) {
	switch {
	case a.is != nil:
		if vs.table.issued.remove(a.key, a.is) {
			vs.table.Touch([]byte(a.key)) // its mark can be dropped
		}
		vs.published(a, offset, clock, Published{Verdict: a.is.v, Broker: a.is.broker, Traced: a.is.traced})
	case a.erased:
		vs.published(a, offset, clock, Published{Broker: event.NoTime})
	case a.left != nil:
		v := *a.left
		v.Seq = offset
		vs.published(a, offset, clock, Published{Verdict: v, Broker: event.NoTime})
	case a.grants != nil:
		vs.levels.grantedDurable(a.grants)
	case a.saying != nil:
		vs.levels.announced.says(a.saying)
		vs.levels.appendOwn(&protocol.Record{Version: a.saying.number}, &Ack{says: a.saying})
	case a.own != nil:
		if a.says != nil {
			vs.levels.announced.said = *a.says
		}
		vs.log.out.Strict = append(vs.log.out.Strict, Strict{Offset: offset, Record: *a.own})
	default:
		vs.stateDurable(a, offset, clock)
		return
	}
	if a.done != nil {
		vs.log.out.Done = append(vs.log.out.Done, *a.done)
	}
}

// published tells the owner of a verdict, or a tombstone, that is durable in the verdict topic.
func (vs *Verdicts) published(a *Ack, offset int64, clock Clock, is Published) {
	is.Offset, is.Key, is.Value, is.At = offset, a.record.Key, a.record.Value, clock.Local
	vs.log.out.Published = append(vs.log.out.Published, is)
}

// stateDurable publishes what a state record at an offset has made durable.
func (vs *Verdicts) stateDurable(a *Ack, seq int64, clock Clock) {
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
		vs.publish(a.key, is, then(), clock)
	}
	if a.level != nil {
		vs.levels.levelDurable(a.level, seq, then())
	}
	for _, recordKey := range a.erase {
		vs.erase(recordKey, then())
	}
	if a.gone {
		vs.levels.appendOwn(&protocol.Record{Gone: a.key}, &Ack{done: then()})
	}
	if a.done != nil && all == 0 {
		vs.log.out.Done = append(vs.log.out.Done, *a.done)
	}
}

// publish asks for a durable verdict in the verdict topic and in the audit.
func (vs *Verdicts) publish(key string, is *issued, done *Done, clock Clock) {
	rec := Append{Key: verdict.AppendRecordKey(nil, &is.v), Value: verdict.AppendJSON(nil, &is.v), Urgent: true}
	vs.log.out.Aux = append(vs.log.out.Aux, Aux{Topic: Audit, Key: rec.Key, Value: appendAudit(nil, clock.Local, vs.by, rec.Value, vs.notify[is.v.Rule])})
	rec.Ack = &Ack{key: key, is: is, done: done, record: rec}
	vs.log.out.Verdicts = append(vs.log.out.Verdicts, rec)
}

// erase asks for a tombstone in the verdict topic.
func (vs *Verdicts) erase(recordKey []byte, done *Done) {
	rec := Append{Key: recordKey, Urgent: true}
	rec.Ack = &Ack{erased: true, done: done, record: rec}
	vs.log.out.Verdicts = append(vs.log.out.Verdicts, rec)
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

// lastOfEach leaves out what is replaced at once, as where a rule's window is another one and its
// first event is over the limit: what the old one had in force is cleared, and a block is issued.
// Both would have one seq, and readers keep what came first. Notices are each of their own.
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

// holdBack takes those out of changes that wait.
func (vs *Verdicts) holdBack(key []byte, changes []verdict.Verdict, moves []rules.Move, clock Clock) []verdict.Verdict {
	if len(moves) == 0 || clock.Broker == event.NoTime {
		return changes
	}
	return slices.DeleteFunc(changes, func(v verdict.Verdict) bool {
		i := slices.IndexFunc(moves, func(m rules.Move) bool { return m.Rule == v.Rule })
		if i < 0 || v.State != verdict.Block {
			return false
		}
		if e := vs.table.moved.find(string(key), v.Rule); e != nil && e.v != nil {
			vs.log.tally.Overtaken++
		}
		return vs.table.moved.keep(string(key), &v, &moves[i], clock.Broker)
	})
}

// EndsWaiting counts the ends of blocks that have moved and wait to be published.
func (vs *Verdicts) EndsWaiting() int { return vs.table.moved.waiting }

// EndsDue returns the keys of which PublishEnds has something to publish now, or of all ends that
// wait.
func (vs *Verdicts) EndsDue(all bool, clock Clock) []string {
	return vs.table.moved.due(clock.Broker, all)
}

// PublishEnds publishes the ends of a key's blocks that are due, which may be fewer than EndsDue
// has found.
func (vs *Verdicts) PublishEnds(key string, all bool, clock Clock) {
	changes := vs.table.moved.take(key, clock.Broker, all)
	ref, known := vs.table.Get([]byte(key))
	if len(changes) == 0 || !known {
		return
	}
	// Not the event's broker time: how long it waited on purpose is no latency.
	vs.issue(ref, changes, event.NoTime)
}
