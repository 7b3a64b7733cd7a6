package admit

import (
	"cmp"
	"context"
	"math"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/limits"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
	"github.com/tallygate/tallygate/rules"
)

// again says why to begin again.
type again uint8

const (
	moved  again = iota // other rules are in force
	passed              // a key in doubt was let through
)

// ask asks for all keys, one after the other. Without a permit and an error it is to be called again.
func (t *attempt) ask(ctx context.Context, p *page) (*Permit, again, error) {
	t.asksAhead()
	r := protocol.Request{Keys: make([]protocol.Ask, len(t.asks))}
	for i := range t.asks {
		r.Keys[i] = t.asks[i].Ask
	}
	next := r.Begin()
	for {
		for _, i := range next.Cancel {
			t.giveUp(i, next.Move == protocol.Unknown)
		}
		switch next.Move {
		case protocol.AskNow:
			answer := t.question(ctx, p, &r, next.Key)
			if err := ctx.Err(); err != nil && answer == nil {
				for i := range len(r.Grants()) + 1 {
					t.giveUp(i, true)
				}
				t.aheadFailed()
				return nil, moved, err
			}
			next = r.Answered(answer, t.a.now())
		case protocol.Perform:
			return t.granted(r.Grants()), moved, nil
		case protocol.Refuse:
			t.aheadFailed()
			return t.refused(next), moved, nil
		case protocol.Fetch:
			t.aheadFailed()
			return t.fetch(ctx, next)
		default:
			t.aheadFailed()
			return t.doubt(&t.asks[next.Key], t.reasonOf(&next)), passed, nil
		}
	}
}

// giveUp gives back what an ask may have been granted. unheard says that the last question had no answer:
// what is in flight under a caller's id may then be under way since an earlier question, which this one was
// to renew.
func (t *attempt) giveUp(i int, unheard bool) {
	one := &t.asks[i]
	if unheard && one.inFlight && one.Named {
		return
	}
	t.gaveUp++
	t.a.cancels.add(one.Partition, one.Key, one.IDs...)
}

// question asks once, and waits for a second at most; nil is no answer.
func (t *attempt) question(ctx context.Context, p *page, r *protocol.Request, key int) *protocol.Answer {
	heard := p.heard[p.shards.Shard(r.Keys[key].Partition)]
	now := t.a.now()
	q := r.Question(heard.before(now), now)
	ctx, stop := context.WithTimeout(ctx, protocol.AnswerWithin.Duration())
	defer stop()
	t.a.counts.questions.Add(1)
	t.asks[key].sent = now
	var answer protocol.Answer
	if answer, t.failed = p.shards.Admit(ctx, &q); t.failed != nil {
		t.a.counts.unanswered.Add(1)
		return nil
	}
	heard.note(answer.Clock, t.a.now())
	return &answer
}

// granted makes the permit of all grants.
func (t *attempt) granted(grants []protocol.Answer) *Permit {
	id := ""
	for i := range t.asks {
		if one := &t.asks[i]; id == "" || len(one.IDs[0]) < len(id) {
			id = one.IDs[0] // that of what is in flight is longer
		}
	}
	p := t.permit(id)
	first := true
	left := math.Inf(1)
	if p.By != nil {
		left = float64(p.Numbers.Remaining)
	}
	for i := range grants {
		one, g := &t.asks[i], &grants[i]
		p.add(hold{one.Partition, one.inFlight, one.Key, one.IDs[0]})
		if !one.inFlight {
			p.granted(one.Key, g.At, first)
			first = false
		}
		if n, by := one.numbers(g, true); by != nil && float64(n.Remaining) < left {
			left = float64(n.Remaining)
			p.By, p.Key, p.Numbers = by, one.Key, n
		}
	}
	if len(t.asks) == 1 && t.asks[0].turn != 0 {
		t.a.spares.answered(&t.asks[0], &grants[0])
	}
	return p
}

// asksAhead asks for one permit only where another request asks for several of the key already.
func (t *attempt) asksAhead() {
	if one := &t.asks[0]; len(t.asks) == 1 && len(one.IDs) > 1 && !t.a.spares.asks(one) {
		one.IDs = one.IDs[:1]
	}
}

// aheadFailed notes that nothing came of asking ahead.
func (t *attempt) aheadFailed() {
	if len(t.asks) == 1 && len(t.asks[0].IDs) > 1 {
		t.a.spares.failed(&t.asks[0])
	}
}

func (t *attempt) refused(next protocol.Next) *Permit {
	one := &t.asks[next.Key]
	switch next.Answer.Status {
	case protocol.Spent:
		return t.spent(one, &next.Answer)
	case protocol.Taken:
		return t.refuse(one.by[0], one.Key, taken, "a permit with this id is another action's")
	}
	n, by := one.numbers(&next.Answer, false)
	why, amount := "", event.One
	if by != nil {
		amount = one.Wants[next.Answer.Decides].Amount
	}
	if next.Answer.Status == protocol.TooMany {
		why = "the key has as many permits as one may have"
	}
	return t.deny(by, one.Key, n, amount, why)
}

// fetch makes ready for the rules that are in force.
func (t *attempt) fetch(ctx context.Context, next protocol.Next) (*Permit, again, error) {
	one := &t.asks[next.Key]
	t.movedAt = next.Key
	if next.Answer.Status == protocol.OutOfRange {
		for _, l := range one.by {
			one.v.limits[l].EndsAt(next.Answer.Now)
		}
		return nil, moved, nil
	}
	limited, stop := context.WithTimeout(ctx, readTimeout)
	defer stop()
	if err := t.a.book.follow(limited, one.Partition, next.Answer.Version); err != nil {
		return t.doubt(one, err.Error()), passed, ctx.Err()
	}
	return nil, moved, nil
}

func (t *attempt) reasonOf(next *protocol.Next) string {
	switch next.Answer.Status {
	case protocol.Doubt:
		return "this Redis may not grant permits now: the aggregator is away, or Redis lost its memory"
	case protocol.Ahead:
		return "Redis' clock is far ahead of the aggregator's: one of them is wrong"
	case protocol.Late, protocol.Spent: // an id of our own was granted, and has ended meanwhile
		return "Redis answers late"
	}
	switch failure.Of(cmp.Or(t.failed, context.DeadlineExceeded)) {
	case failure.Auth:
		return "Redis refuses the user, its password or a right"
	case failure.Memory:
		return "Redis has no memory left"
	case failure.Other:
		return "Redis answers with an error"
	default:
		return "Redis does not answer"
	}
}

// numbers reads the key's position from an answer, with the limit that it is about.
func (one *ask) numbers(g *protocol.Answer, granted bool) (n Numbers, by *rules.Limit) {
	n = limits.Numbers(one.Wants, g, granted)
	if g.Decides >= 0 && g.Decides < len(one.by) {
		by = one.by[g.Decides]
	}
	return n, by
}
