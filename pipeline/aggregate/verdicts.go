package aggregate

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// A verdict and its state live and die together: the state is written first, with the verdict
// in it marked unpublished. Only when that is durable does the verdict go out, with the
// record's offset as its seq; once it is out too, the key's next write drops the mark.

// pendings are the verdicts between the two acknowledgements. Its lock is held for moments,
// and never while waiting: the writers' callbacks take it.
type pendings struct {
	mu    sync.Mutex
	byKey map[string][]*pendingVerdict
	done  [][]byte // keys whose mark can be dropped
}

type pendingVerdict struct {
	unpublished
	v      verdict.Verdict
	broker event.Micros // of the event that caused it
	then   func()       // called when it is published; nil for nothing
}

func (s *pendings) add(key string, vs []*pendingVerdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byKey[key] = append(s.byKey[key], vs...)
}

// of returns a key's unpublished verdicts, oldest first.
func (s *pendings) of(key []byte) []unpublished {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.byKey[string(key)]
	if len(list) == 0 {
		return nil
	}
	out := make([]unpublished, len(list))
	for i, pv := range list {
		out[i] = pv.unpublished
	}
	return out
}

func (s *pendings) has(key []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byKey[string(key)]) > 0
}

// durable notes the offset of the state record that made pv durable.
func (s *pendings) durable(pv *pendingVerdict, seq int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pv.seq = seq
	pv.v.Seq = seq
}

func (s *pendings) remove(key string, pv *pendingVerdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.byKey[key]
	for i := range list {
		if list[i] == pv {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if len(list) > 0 {
		s.byKey[key] = list
		return
	}
	delete(s.byKey, key)
	s.done = append(s.done, []byte(key))
}

// published returns the keys whose verdicts have all gone out since the last call.
func (s *pendings) published() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := s.done
	s.done = nil
	return done
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

// writeThrough writes a key's state with the verdicts that changed, outside any checkpoint.
func (p *partition) writeThrough(ref state.Ref, changes []verdict.Verdict, broker event.Micros) error {
	return p.writeThroughThen(ref, changes, broker, thenDo{})
}

// thenDo is what a write-through does behind its verdicts.
type thenDo struct {
	erase [][]byte                // record keys that get a tombstone in the verdict topic
	call  func([]verdict.Verdict) // once all is acknowledged; it must not block, nor take the partition's lock
}

// lastOfEach leaves out what is replaced at once, as where a rule's window is another one and its first event is over the limit:
// what the old one had in force is cleared, and a block falls. Both would have one seq, and readers keep what came first.
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

// writeThroughThen is writeThrough, and more behind it.
func (p *partition) writeThroughThen(ref state.Ref, changes []verdict.Verdict, broker event.Micros, t thenDo) error {
	key := string(p.table.Key(ref))
	p.overtake(key, changes, len(t.erase) > 0)
	if len(changes) > 1 {
		changes = lastOfEach(changes)
	}
	vs := make([]*pendingVerdict, len(changes))
	for i := range changes {
		v := cloneVerdict(&changes[i])
		vs[i] = &pendingVerdict{unpublished: unpublished{seq: -1, body: verdict.AppendJSON(nil, &v)}, v: v, broker: broker}
	}
	if len(vs) > 0 {
		p.pending.add(key, vs)
	}
	rec := p.stateRecord(new([]byte), ref)
	p.table.Copied(ref)
	return p.enqueue(p.changelog, rec, true, func(offset int64, at time.Time, err error) {
		if err != nil {
			return // the writer's end is the partition's end
		}
		p.clockOfBroker.appended(at)
		for _, pv := range vs {
			p.pending.durable(pv, offset)
		}
		then := t.after(vs)
		for i, pv := range vs {
			if i == len(vs)-1 && len(t.erase) == 0 {
				pv.then = then
			}
			p.die(p.publish(key, pv))
		}
		for i, recordKey := range t.erase {
			if i < len(t.erase)-1 {
				p.die(p.erase(recordKey, nil))
			} else {
				p.die(p.erase(recordKey, then))
			}
		}
		if then != nil && len(vs)+len(t.erase) == 0 {
			then()
		}
	})
}

// after is what to call when the last record is acknowledged: they go out over one writer, in order.
func (t *thenDo) after(vs []*pendingVerdict) func() {
	if t.call == nil {
		return nil
	}
	all := make([]verdict.Verdict, len(vs))
	for i, pv := range vs {
		all[i] = pv.v
	}
	return func() { t.call(all) }
}

// publish appends a durable verdict to the verdict topic and to the audit topic.
func (p *partition) publish(key string, pv *pendingVerdict) error {
	rec := fenced.Record{Key: verdict.AppendRecordKey(nil, &pv.v), Value: verdict.AppendJSON(nil, &pv.v)}
	if err := p.audit(rec.Key, rec.Value); err != nil {
		return err
	}
	return p.ended(p.verdicts.Append(p.ctx, rec, true, func(offset int64, _ time.Time, err error) {
		if err != nil {
			return
		}
		p.pending.remove(key, pv)
		p.agg.metrics.published(p, pv)
		p.offer(VerdictRecord{offset, rec.Key, rec.Value, now(), pv.v})
		if pv.then != nil {
			pv.then()
		}
	}))
}

// erase appends a tombstone to the verdict topic.
func (p *partition) erase(recordKey []byte, then func()) error {
	return p.ended(p.verdicts.Append(p.ctx, fenced.Record{Key: recordKey}, true, func(offset int64, _ time.Time, err error) {
		if err != nil {
			return
		}
		p.offer(VerdictRecord{Offset: offset, Key: recordKey, At: now()})
		if then != nil {
			then()
		}
	}))
}

// forgotten reports whether a command has erased a key, and nothing came since: its block has its marks, and no state.
func (p *partition) forgotten(key string) bool {
	ref, known := p.table.Get([]byte(key))
	if !known {
		return false
	}
	b, err := decodeBlock(p.table.Block(ref))
	return err == nil && len(b.state) == 0
}

// eraseBehind erases what is published once more of a forgotten key: that it was cleared.
func (p *partition) eraseBehind(key string, vs []*pendingVerdict) {
	changes := make([]verdict.Verdict, len(vs))
	for i, pv := range vs {
		changes[i] = pv.v
	}
	for _, recordKey := range p.erased([]byte(key), changes) {
		p.die(p.erase(recordKey, nil))
	}
}

// offer hands an acknowledged record to the publisher.
func (p *partition) offer(r VerdictRecord) {
	if pub := p.agg.cfg.Published; pub != nil {
		pub.Offer(p.id, p.offered, r.Offset+1, r)
	}
	p.offered = r.Offset + 1
}

// republish sends what the owner before has left unpublished, before the first event. Of
// several on one record key the newest stands for all.
func (p *partition) republish() {
	for key, l := range p.leftovers {
		var vs []*pendingVerdict
		newest := map[string]int{}
		for _, u := range l.verdicts {
			v, err := verdict.Parse(u.body)
			if err != nil {
				p.die(fmt.Errorf("unpublished verdict in the changelog at %d: %w", l.offset, err))
				return
			}
			if v.Seq = u.seq; u.seq < 0 {
				v.Seq = l.offset
			}
			pv := &pendingVerdict{unpublished: unpublished{v.Seq, u.body}, v: v, broker: event.NoTime}
			record := string(verdict.AppendRecordKey(nil, &v))
			if i, ok := newest[record]; ok {
				vs[i] = pv
				continue
			}
			newest[record] = len(vs)
			vs = append(vs, pv)
		}
		p.pending.add(key, vs)
		for _, pv := range vs {
			p.die(p.publish(key, pv))
		}
		if p.forgotten(key) {
			p.eraseBehind(key, vs)
		}
	}
	if n := len(p.leftovers); n > 0 {
		p.log.Info("published what the owner before had left unpublished", "keys", n)
	}
	p.leftovers = nil
}

// audit sends a verdict's JSON to the audit topic, with when and by whom it is published.
func (p *partition) audit(recordKey, body []byte) error {
	return p.sendAside(p.agg.names.Audit, time.Time{}, recordKey, appendAudit(nil, now(), p.agg.by, body), nil)
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
