package emitcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/internal/tools/accesslog"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// sender sends the reader's events to Kafka.
type sender struct {
	*options
	emitter *emit.Emitter
	say     *reporter
	reader  *accesslog.Reader
	tail    *tail // nil unless a file is followed
	skipped int
}

// send returns when the input or ctx has ended and what was read is acknowledged, or when Kafka has
// acknowledged nothing for as long as --patience.
func (s *sender) send(ctx context.Context) error {
	patience := newPatience(s.emitter, s.patience, s.say)
	defer patience.stop()
	if !s.follow {
		patience.mayEnd()
	}
	defer context.AfterFunc(ctx, patience.mayEnd)()
	// The end of ctx ends the reading, not the sending of what was read.
	sending := patience.ctx
	if s.tail != nil {
		s.tail.follow(sending, s)
	}
	err := s.copy(ctx, sending)
	patience.mayEnd()
	if s.tail != nil && err == nil {
		err = s.tail.saveNow()
	}
	if closeErr := s.emitter.Close(sending); err == nil {
		err = closeErr
	}
	return err
}

func (s *sender) copy(ctx, sending context.Context) error {
	pace := pacer{rate: s.rate}
	for ctx.Err() == nil {
		e, line, err := s.reader.Next()
		if bad, ok := errors.AsType[*accesslog.LineError](err); ok {
			s.skip(bad.Line, bad.Err)
			continue
		}
		if errors.Is(err, io.EOF) || errors.Is(err, errStopped) {
			return nil
		}
		if sending.Err() != nil {
			return context.Cause(sending)
		}
		if err != nil {
			return fmt.Errorf("read the input: %w", err)
		}
		s.say.suspects(line, s.reader.Suspects())
		if s.now {
			e.Time = event.NoTime
		} else if e.Time != event.NoTime {
			s.say.age(line, e.Time.Time())
		}
		if err := pace.wait(ctx); err != nil {
			return nil // interrupted: send what was read before
		}
		if err := s.emit(sending, e); sending.Err() != nil {
			return context.Cause(sending)
		} else if err != nil {
			s.skip(line, err)
		}
		if s.tail != nil {
			if err := s.tail.save(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *sender) emit(ctx context.Context, e event.Event) error {
	if s.tail == nil {
		return s.emitter.EmitWait(ctx, e)
	}
	return s.emitter.EmitAt(ctx, e, uint64(s.tail.at()))
}

func (s *sender) skip(line int, err error) {
	s.skipped++
	s.say.skipped(line, err)
}

// pacer limits the rate of events per second; 0 is no limit.
type pacer struct {
	rate float64
	next time.Time
}

func (p *pacer) wait(ctx context.Context) error {
	if p.rate == 0 {
		return nil
	}
	now := time.Now()
	if p.next.Before(now.Add(-time.Second)) { // at the start, or after a pause: do not catch up
		p.next = now
	}
	wait := p.next.Sub(now)
	p.next = p.next.Add(time.Duration(float64(time.Second) / p.rate))
	if wait > 0 && !retry.Sleep(ctx, wait) {
		return ctx.Err()
	}
	return nil
}

// patience watches whether Kafka acknowledges anything while events wait. It tells the user what is
// wrong, and ends ctx when that has lasted too long.
type patience struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	ends   chan struct{} // closed when the time limit applies
	once   sync.Once
	done   sync.WaitGroup
}

func newPatience(e *emit.Emitter, limit time.Duration, say *reporter) *patience {
	p := &patience{ends: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.done.Go(func() { p.watch(e, limit, say) })
	return p
}

// mayEnd starts the time limit.
func (p *patience) mayEnd() { p.once.Do(func() { close(p.ends) }) }

func (p *patience) stop() {
	p.cancel(nil)
	p.done.Wait()
}

func (p *patience) watch(e *emit.Emitter, limit time.Duration, say *reporter) {
	tick := time.NewTicker(min(limit, time.Second))
	defer tick.Stop()
	var emitted uint64
	progress, ends := time.Now(), p.ends
	limited := false
	for {
		select {
		case <-tick.C:
		case <-ends:
			ends, limited = nil, true
			progress = time.Now()
		case <-p.ctx.Done():
			return
		}
		stats := e.Stats()
		if stats.Queued == 0 || stats.Emitted != emitted {
			progress, emitted = time.Now(), stats.Emitted
		}
		stalled := time.Since(progress)
		if stalled >= 2*time.Second && stats.LastError != nil {
			say.stalled(stats.LastError)
		}
		if limited && stalled >= limit {
			p.cancel(fmt.Errorf("gave up after %v without an answer from Kafka: %w", limit, lastOr(stats.LastError)))
			return
		}
	}
}

func lastOr(err error) error {
	if err == nil {
		return errors.New("it takes the events and does not acknowledge them")
	}
	return err
}
