package script

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

const (
	// Calls to a shard that are under way at once. Questions that come meanwhile wait for one of them to
	// end, and go together: a script that is called takes as much CPU as it does for a question.
	callsAtOnce = 2
	// When no call has begun for so long, those under way may hang: another one begins, up to so many.
	hangsAfter = 20 * time.Millisecond
	maxCalls   = 16
	// Redis does nothing else during a call. A question for a key that has many permits takes it up to
	// half a millisecond.
	maxQuestions = 32
	maxOfOneKey  = 8
	maxAskedIDs  = 256
)

// lane gathers the questions to a shard.
type lane struct {
	ask func(ctx context.Context, batch []*asked)

	mu      sync.Mutex
	waiting []*asked
	calls   int       // under way
	began   time.Time // the last of them
}

// asked is a question on its way. answered is closed when answer and err are set.
type asked struct {
	ctx      context.Context //nolint:containedctx // a question is not asked when nobody waits for its answer
	question question
	answered chan struct{}
	answer   protocol.Answer
	err      error
}

// Admit asks for permits. The answer's Outdated, Denied and so on are no errors. When ctx ends it
// returns at once: the question may still be on its way.
func (s *Shards) Admit(ctx context.Context, q *protocol.Ask) (protocol.Answer, error) {
	return s.lane(s.Shard(q.Partition)).admit(ctx, q)
}

func (s *Shards) lane(shard int) *lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lanes == nil {
		s.lanes = make([]*lane, s.Shards)
	}
	if s.lanes[shard] == nil {
		s.lanes[shard] = &lane{ask: func(ctx context.Context, batch []*asked) { s.askAll(ctx, shard, batch) }}
	}
	return s.lanes[shard]
}

func (l *lane) admit(ctx context.Context, q *protocol.Ask) (protocol.Answer, error) {
	one := &asked{ctx: ctx, question: question{ask: *q}, answered: make(chan struct{})}
	if l.add(one) {
		go l.run()
	}
	select {
	case <-one.answered:
		return one.answer, one.err
	case <-ctx.Done():
		return protocol.Answer{}, ctx.Err()
	}
}

// add adds a question. It reports whether a call is to begin.
func (l *lane) add(one *asked) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, one)
	if l.calls >= callsAtOnce && (l.calls >= maxCalls || time.Since(l.began) < hangsAfter) {
		return false
	}
	l.calls++
	return true
}

// take takes the questions of the next call, but those that nobody waits for. Where there is none, the
// goroutine that calls it must end.
func (l *lane) take() (batch []*asked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest, ids := l.waiting[:0], 0
	for _, one := range l.waiting {
		switch n := len(one.question.ask.IDs); {
		case len(batch) == maxQuestions, len(batch) > 0 && ids+n > maxAskedIDs, ofKey(batch, one) == maxOfOneKey:
			rest = append(rest, one)
		case one.ctx.Err() == nil:
			batch = append(batch, one)
			ids += n
		}
	}
	clear(l.waiting[len(rest):])
	l.waiting = rest
	if len(batch) == 0 {
		l.calls--
		return nil
	}
	l.began = time.Now()
	return batch
}

// ofKey counts the questions about the same key as one.
func ofKey(batch []*asked, one *asked) (n int) {
	for _, other := range batch {
		if other.question.ask.Key == one.question.ask.Key {
			n++
		}
	}
	return n
}

// run asks until nothing waits.
func (l *lane) run() {
	for {
		// Questions come in bursts: those who were answered ask again. Goroutines that are ready to run
		// add theirs first. With none this takes no time.
		runtime.Gosched()
		batch := l.take()
		if len(batch) == 0 {
			return
		}
		// The answers may be awaited by others than the first one.
		ctx, stop := context.WithTimeout(context.WithoutCancel(batch[0].ctx), protocol.AnswerWithin.Duration())
		l.ask(ctx, batch)
		stop()
		for _, one := range batch {
			close(one.answered)
		}
	}
}

// askAll asks some questions in one call.
func (s *Shards) askAll(ctx context.Context, shard int, batch []*asked) {
	reply, err := s.call(ctx, shard, opAdmit, func(p *process) []any {
		args := make([]any, len(batch))
		for i, one := range batch {
			one.question.name, one.question.json = s.newName(), p.json
			args[i] = &one.question
		}
		return args
	})
	if len(batch) == 1 {
		reply = []any{reply}
	}
	if err == nil && len(reply) != len(batch) {
		err = fmt.Errorf("script: admit: %d answers to %d questions", len(reply), len(batch))
	}
	for i, one := range batch {
		if one.err = err; err == nil {
			one.answer, one.err = answerIn(&one.question.ask, reply[i])
		}
	}
}

// answerIn reads one answer of several.
func answerIn(q *protocol.Ask, reply any) (protocol.Answer, error) {
	if list, ok := reply.([]any); ok {
		return answerOf(q, list)
	}
	if text, ok := reply.(string); ok && strings.HasPrefix(text, "!") {
		return protocol.Answer{}, fmt.Errorf("script: admit: %w", failedInside(text[1:]))
	}
	return answerOf(q, []any{reply})
}

// failedInside is Redis' error for one question of several.
type failedInside string

func (e failedInside) Error() string { return string(e) }

// RedisError makes it a redis.Error: Redis has answered.
func (failedInside) RedisError() {}
