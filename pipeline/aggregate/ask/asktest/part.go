package asktest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// Part is a partition as owner.Partition is one, but all that its shard writes is durable at once: there is nothing to
// take over, and no answer waits for Kafka unless Group.Stall says so.
type Part struct {
	group *Group
	id    int32

	mu     sync.Mutex
	shard  *shard.Shard
	rules  *owner.Rules
	next   [shard.Sources]int64
	offset int64 // of its last record in any topic: sequence numbers only have to rise
}

// newPart opens a partition that has never been owned: no changelog, and no offset that the group has committed.
func newPart(g *Group, id int32, v *owner.Rules) *Part {
	p := &Part{group: g, id: id, rules: v}
	p.shard = shard.New(shard.Config{
		ID: id, Of: Partitions, MaxDeadLetter: 1 << 20, Instance: "asktest",
		PackAfter: 1000 * event.Hour, // others get whole events, which need no version of the rules
	}, shard.Rules{Number: v.Number, Set: v.Set})
	_, err := p.shard.Takeover().Resume(shard.Found{Committed: -1}, clock())
	if err == nil {
		p.perform(nil)
		err = p.shard.Takeover().Republish(clock())
	}
	p.perform(nil)
	must(g.t, err)
	return p
}

// clock has one time for both clocks. Windows of tests are long, so that none ends while a test runs.
func clock() shard.Clock {
	is := event.FromTime(time.Now())
	return shard.Clock{Local: is, Broker: is}
}

// must ends the test: what fails here is a mistake of a test, and no answer.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// take counts a record. It returns what is to be forwarded, since other partitions have locks of their own.
func (p *Part) take(src shard.Source, value []byte) (forwards []shard.Forward) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.shard.Record(src, &record.Record{Offset: p.next[src], Timestamp: time.Now().UnixMilli(), Value: value}, clock())
	p.next[src]++
	if err == nil {
		err = p.shard.Step(src, p.next[src], clock())
	}
	must(p.group.t, err)
	p.perform(func(e *shard.Effects) { forwards = append(forwards, e.Forwards...) })
	return forwards
}

// perform acknowledges all that the shard asks for, and shows it to look. States come before verdicts, as the shard
// releases a verdict when its state is durable; so it takes several rounds. The partition is locked.
func (p *Part) perform(look func(*shard.Effects)) {
	for !p.shard.Effects().Empty() {
		is := *p.shard.Effects()
		*p.shard.Effects() = shard.Effects{}
		if look != nil {
			look(&is)
		}
		for _, a := range is.Aux {
			p.group.audited(string(a.Value))
		}
		for _, list := range [][]shard.Append{is.States, is.Verdicts} {
			for _, a := range list {
				if a.Ack != nil {
					p.shard.Acked(a.Ack, p.offset, clock())
				}
				p.offset++
			}
		}
	}
}

// ID is the partition's number.
func (p *Part) ID() int32 { return p.id }

// Live is true: no partition fails, or moves.
func (p *Part) Live() bool { return true }

// Sight returns all that a shard knows by itself: no times of takeovers or checkpoints.
func (p *Part) Sight() (s owner.Sight) {
	p.View(func(is *shard.Shard, _ *owner.Rules) {
		s.Keys, s.Bytes, s.Blown = is.Keys(), is.Bytes(), is.Judge().BlownRules()
	})
	return s
}

// View calls f with the shard under the lock that events take, too.
func (p *Part) View(f func(*shard.Shard, *owner.Rules)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p.shard, p.rules)
}

// ViewSome calls f until it returns false: here no events wait for it.
func (p *Part) ViewSome(f func(*shard.Shard, *owner.Rules) bool) {
	p.View(func(s *shard.Shard, v *owner.Rules) {
		for f(s, v) { //nolint:revive // f does it
		}
	})
}

// KeysWith returns the keys that contain the dimensions of a key, but for the key itself. Its owner looks at them in
// slices between events; here it is one look.
func (p *Part) KeysWith(_ context.Context, key []event.Dim) (out []string, err error) {
	var each [][]byte
	for _, d := range key {
		each = append(each, event.AppendDim(nil, d.Name, d.Value))
	}
	p.View(func(s *shard.Shard, _ *owner.Rules) {
		for part := range shard.Parts {
			out = s.KeysWith(out, part, each, event.FormatKey(key))
		}
	})
	return out, nil
}

// CarryOut puts a command into the audit and applies it to its keys. While Group.Stall is set it waits for the end of
// ctx, as it would for a Kafka that acknowledges nothing.
func (p *Part) CarryOut(ctx context.Context, rec *shard.CommandRecord) (done owner.CommandResult, err error) {
	if p.group.Stall.Load() {
		<-ctx.Done()
		return done, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := clock().Broker
	lines, err := rec.AuditLines(at)
	for _, line := range lines {
		p.group.audited(string(line))
	}
	for _, key := range rec.AllKeys() {
		if err == nil {
			err = p.shard.Command(rec, key, at)
		}
	}
	p.perform(func(e *shard.Effects) {
		for _, d := range e.Done {
			if d.Had {
				done.Keys = append(done.Keys, d.Key)
			}
			done.Verdicts = append(done.Verdicts, d.Verdicts...)
		}
	})
	return done, err
}
