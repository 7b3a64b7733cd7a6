package e2e

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/tallygate/tallygate/pipeline/emit"
)

// load emits a plan's events: through a fault for as long as that lasts, then on to the next.
type load struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	due    []chan struct{} // closed when a step's moment has come
	over   []chan struct{} // closed when it has been survived
}

const (
	lasts   = 8 * time.Second // what a step is expected to last: its events are spread over that
	fastest = 30_000          // events a second otherwise
	tick    = 20 * time.Millisecond
)

func (s *stage) emitPlan() *load {
	ctx, cancel := context.WithCancel(s.ctx)
	l := &load{cancel: cancel}
	for range s.plan.steps {
		l.due = append(l.due, make(chan struct{}))
		l.over = append(l.over, make(chan struct{}))
	}
	g := s.traffic(rand.New(rand.NewPCG(s.plan.seed, 2)), s.plan.uids, "")
	var es []*emit.Emitter
	for _, size := range []int{1, 16, 300} {
		es = append(es, s.emitter(func(c *emit.Config) {
			c.EventsPerRecord, c.Brokers, c.TracesPerSecond = size, strings.Split(s.apps.addrs(), ","), fastest
		}))
	}
	l.wg.Go(func() {
		s.emitAll(ctx, l, g, es)
		for _, e := range es {
			closeEmitter(s.t, e)
		}
	})
	return l
}

// traffic is late by half of what is allowed, at most.
func (s *stage) traffic(rnd *rand.Rand, uids int, prefix string) *traffic {
	return &traffic{rnd: rnd, uids: uids, prefix: prefix, late: s.set.MaxLateness / 2}
}

func (s *stage) emitAll(ctx context.Context, l *load, g *traffic, es []*emit.Emitter) {
	at := func(i int) int {
		if i < len(s.plan.steps) {
			return s.plan.steps[i].at
		}
		return s.plan.events
	}
	none := make(chan struct{})
	close(none)
	l.emit(ctx, g, es, at(0), none)
	for i := range s.plan.steps {
		close(l.due[i])
		l.emit(ctx, g, es, at(i+1)-at(i), l.over[i])
		select {
		case <-l.over[i]:
		case <-ctx.Done():
			return
		}
	}
}

// emit emits n events: nine tenths of them slowly until over, and what is left fast.
func (l *load) emit(ctx context.Context, g *traffic, es []*emit.Emitter, n int, over <-chan struct{}) {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	slow, least := max(1, n*int(tick)/int(lasts)), n/10
	for n > 0 {
		batch := 0
		select {
		case <-over:
			batch = min(n, fastest*int(tick)/int(time.Second))
		default:
			batch = min(max(n-least, 0), slow)
		}
		for range batch {
			if err := es[g.n%len(es)].EmitWait(ctx, traced(g)); err != nil {
				return // the test is over
			}
		}
		n -= batch
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

func (l *load) stop() {
	if l != nil {
		l.cancel()
		l.wg.Wait()
	}
}

// wait returns when all is emitted.
func (l *load) wait() { l.wg.Wait() }
