package publish

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

const (
	errandTimeout = 10 * time.Second // of what waits for a broker or an owner
	maxTold       = 10_000           // lost permits that are remembered, however long ago Redis named them
	toldFor       = 10 * event.Minute
)

// marks are a worker's errands: what its warden and its reporter want to know, and have to say. All but
// the errands themselves runs in the worker's goroutine, which takes in by done what they brought.
type marks struct {
	w       *worker
	running sync.WaitGroup
	done    chan func()

	input, loop                 end
	asking, granting, reporting errand
	progress                    protocol.Progress

	life    string                  // that told is of
	began   event.Micros            // when it was met, by the shard's clock
	told    map[lostID]event.Micros // lost permits that the owner was told of, and when Redis named them last
	crowd   int                     // so many of them are looked through for old ones
	granted *protocol.Grants        // the last one that the owner appended
}

// errand is one that is under way, or was. There is one of each kind at a time.
type errand struct {
	kind  int32
	busy  bool
	began time.Time
}

// errands is the number of kinds.
const errands = 5

// lostID names a permit.
type lostID struct{ key, id string }

// end is a log's end that is wanted.
type end struct {
	errand
	read   func(ctx context.Context, partition int32) (int64, error)
	tell   func(int64)
	wanted int   // how often it was wanted
	known  int   // which of these is known
	offset int64 // then
}

func (e *end) want() { e.wanted++ }

// ahead tells whether progress has not come to the end that is wanted.
func (e *end) ahead(progress int64) bool {
	return e.wanted > 0 && e.known == e.wanted && progress < e.offset
}

func (m *marks) init(w *worker) {
	m.w, m.done, m.told = w, make(chan func(), errands), map[lostID]event.Micros{}
	m.input = end{read: w.p.cfg.Ends.InputEnd, tell: w.reporter.Ended}
	m.loop = end{read: w.p.cfg.Ends.LoopEnd, tell: w.warden.Ended}
	for i, e := range []*errand{&m.input.errand, &m.loop.errand, &m.asking, &m.granting, &m.reporting} {
		e.kind = int32(i)
	}
}

// ready tells whether an errand may begin: four a heartbeat at most, however often Redis is called.
func (m *marks) ready(e *errand) bool {
	return !e.busy && time.Since(e.began) >= m.w.p.cfg.Heartbeat/4
}

// begin runs an errand beside the worker. Its result is taken in by the worker's goroutine.
func (m *marks) begin(ctx context.Context, e *errand, do func(context.Context) (took func(), err error)) {
	e.busy, e.began = true, time.Now()
	who := m.w.partition*errands + e.kind
	m.running.Go(func() {
		limited, cancel := context.WithTimeout(ctx, errandTimeout)
		defer cancel()
		took, err := do(limited)
		switch {
		case err == nil:
			m.w.p.owners.Worked(who)
		case ctx.Err() == nil && !errors.Is(err, protocol.ErrReleased):
			m.w.p.owners.Failed(who, err)
		}
		m.done <- func() { // it has room for one of each kind
			e.busy = false
			took()
		}
	})
}

// take takes in what errands have brought, without waiting for them.
func (m *marks) take() {
	for {
		select {
		case done := <-m.done:
			done()
		default:
			return
		}
	}
}

// gone ends the outages that the errands were a part of.
func (m *marks) gone() {
	for kind := range int32(errands) {
		m.w.p.owners.Gone(m.w.partition*errands + kind)
	}
}

// next begins the errands that are due.
func (m *marks) next(ctx context.Context) {
	m.find(ctx, &m.input)
	m.find(ctx, &m.loop)
	// Without traffic, too, it is asked by which rules the partition counts: see Warden.Use.
	if m.ready(&m.asking) && (m.input.ahead(m.progress.Input) || m.loop.ahead(m.progress.Loop) || m.progress.Rules != m.w.p.rules.held().Rules) {
		m.begin(ctx, &m.asking, func(ctx context.Context) (func(), error) {
			progress, err := m.w.owner.Progress(ctx)
			return func() {
				if err == nil {
					m.progressed(progress)
				}
			}, err
		})
	}
}

func (m *marks) progressed(p protocol.Progress) {
	m.progress = p
	if p.Verdicts > m.w.offered.Next() {
		m.w.least = max(m.w.least, p.Verdicts) // it was not offered: the topic has it
	}
}

// find reads an end that is wanted. One that was wanted anew meanwhile is read again: it must be that
// of a later moment.
func (m *marks) find(ctx context.Context, e *end) {
	if e.known == e.wanted || !m.ready(&e.errand) {
		return
	}
	wanted := e.wanted
	m.begin(ctx, &e.errand, func(ctx context.Context) (func(), error) {
		offset, err := e.read(ctx, m.w.partition)
		return func() {
			if err == nil && wanted == e.wanted {
				e.known, e.offset = wanted, offset
				e.tell(offset)
			}
		}, err
	})
}

// grant has the owner append what the warden says. While the topic is being read, the shard's memory
// may become another one, and what was granted of this one would delay that.
func (m *marks) grant(ctx context.Context, now event.Micros) {
	if m.w.behind || m.w.reached < m.w.least || !m.ready(&m.granting) {
		return
	}
	g := m.w.warden.Grants(now)
	if g == nil {
		return
	}
	m.begin(ctx, &m.granting, func(ctx context.Context) (func(), error) {
		err := m.w.owner.Grant(ctx, g)
		return func() {
			if err == nil {
				m.granted = g
			}
		}, err
	})
}

// lost tells the owner of lost permits, of each once a life.
func (m *marks) lost(ctx context.Context, a *protocol.Applied, now event.Micros) {
	if m.life != a.Life {
		m.life, m.began, m.told = a.Life, a.Clock, map[lostID]event.Micros{}
	}
	var untold []protocol.Lost
	for i := range a.Lost {
		id := lostID{a.Lost[i].Key, a.Lost[i].ID}
		if _, ok := m.told[id]; ok {
			m.told[id] = now
		} else if !m.reporting.busy {
			m.told[id] = now
			untold = append(untold, a.Lost[i])
		}
	}
	m.forget(now)
	if len(untold) == 0 {
		return
	}
	life := m.life
	m.begin(ctx, &m.reporting, func(ctx context.Context) (func(), error) {
		err := m.w.owner.CountLost(ctx, untold)
		return func() {
			if err == nil {
				m.w.p.losses.add(untold)
				return
			}
			for i := range untold {
				if life == m.life {
					delete(m.told, lostID{untold[i].Key, untold[i].ID}) // Redis names it again
				}
			}
		}, err
	})
}

// forget forgets permits that Redis has not named for a while. Many may be lost at once: to look through
// all of them at each call would take longer and longer.
func (m *marks) forget(now event.Micros) {
	if len(m.told) <= max(m.crowd, maxTold) {
		return
	}
	maps.DeleteFunc(m.told, func(_ lostID, named event.Micros) bool { return named < now-toldFor })
	m.crowd = 2 * len(m.told)
}

// mayGrant tells whether the shard that answered may grant permits.
func (m *marks) mayGrant(a *protocol.Applied) bool {
	g := m.granted
	return g != nil && g.Hold == 0 && g.Run == a.Run && g.Life == a.Life && g.Until > a.Clock
}
