// Package admit asks for permits before actions, for rules with `strict`, and counts requests by those
// with `scope: instance`. What a strict limit counts, together with what is under way, never exceeds it.
//
//	admitter, err := admit.New(admit.Config{Redis: client})
//	go admitter.Run(ctx)
//
//	p, err := admitter.Admit(ctx, admit.Request{API: "sms.send", Dims: []event.Dim{{Name: "uid", Value: "42"}}})
//	if err != nil {
//		return err // the context has ended, or the request is wrong
//	}
//	if !p.Admitted {
//		return denied(p.Numbers.RetryAfter)
//	}
//	defer p.Done("failure") // when it panics, nobody knows what it did; nothing behind another Done
//	… the action …
//	emitter.Emit(event.Event{API: "sms.send", UID: "42", Permit: p.Event, …})
//	p.Done("success")
//
// It needs Redis alone: the aggregator puts the rules there. A request is judged by the rules that the
// owner of its key's partition counts by, so that a change of the rules lets nothing through. Where
// nobody can say whether a limit is reached, Config.OnDoubt decides.
//
// The protocol is package protocol's, which is pure and simulated; here are its clock, its network and
// its goroutines.
package admit

import "github.com/tallygate/tallygate/pipeline/admit/standing"

// Numbers describe a key's position under a limit.
type Numbers = standing.Numbers

// Never is the RetryAfter of a request that is larger than the limit.
const Never = standing.Never
