package e2e

import (
	"math/rand/v2"
	"syscall"
	"time"
)

func aggregatorFaults() []*fault {
	return []*fault{
		{kind: ofAggregator, name: "killed", strike: killed},
		{kind: ofAggregator, name: "killed again and again", strike: killedAgain},
		{kind: ofAggregator, name: "told to stop", strike: toldToStop},
		{kind: ofAggregator, name: "all killed, all started at once", strike: allKilled},
		{kind: ofAggregator, name: "rolling restart", members: 2, alone: true, strike: rollingRestart},
		{kind: ofAggregator, name: "paused, replaced, woken up", members: 2, strike: replaced},
		{kind: ofAggregator, name: "publisher paused and woken up", strike: publisherPaused},
		{kind: ofAggregator, name: "publisher killed", strike: publisherKilled},
		{kind: ofAggregator, name: "rules reloaded in which a strict limit crosses 64, and back", strict: true, strike: limitCrossed},
	}
}

func killed(s *stage, rnd *rand.Rand) (heal func()) {
	m := s.pick(rnd)
	m.Kill()
	pause(rnd, 0, 2*time.Second)
	return m.starts
}

// starts starts a member that has ended.
func (m *member) starts() {
	m.t.Helper()
	m.Start()
}

// killedAgain kills a program at every stage of its start.
func killedAgain(s *stage, rnd *rand.Rand) (heal func()) {
	m := s.pick(rnd)
	m.Kill()
	for range 3 {
		m.Start()
		pause(rnd, 0, 600*time.Millisecond)
		m.Kill()
	}
	return m.starts
}

func toldToStop(s *stage, rnd *rand.Rand) (heal func()) {
	m := s.pick(rnd)
	m.endsWell()
	pause(rnd, 0, 2*time.Second)
	return m.starts
}

// endsWell tells a program to stop, and expects it to do so without an error.
func (m *member) endsWell() {
	m.t.Helper()
	if status := m.Stop(); status != 0 {
		m.t.Errorf("%s exits with %d after SIGTERM", m.name, status)
	}
}

func allKilled(s *stage, _ *rand.Rand) (heal func()) {
	for _, m := range s.members {
		m.Kill()
	}
	return func() {
		for _, m := range s.members {
			m.Start()
		}
	}
}

func rollingRestart(s *stage, _ *rand.Rand) (heal func()) {
	for _, m := range s.members {
		m.endsWell()
		m.Start()
		m.awaitReady()
	}
	return func() {}
}

// replaced pauses an instance until others have its partitions, as a suspended machine does.
func replaced(s *stage, rnd *rand.Rand) (heal func()) {
	m := s.pick(rnd)
	m.Signal(syscall.SIGSTOP)
	s.replaced(m)
	pause(rnd, 0, time.Second) // the others make their own records
	return func() {
		m.Signal(syscall.SIGCONT)
		if !m.Running() {
			s.t.Errorf("%s ended when it was woken up", m.name)
		}
	}
}

func publisherPaused(s *stage, rnd *rand.Rand) (heal func()) {
	for range 3 {
		s.publisher.Signal(syscall.SIGSTOP)
		pause(rnd, 500*time.Millisecond, 3*time.Second)
		s.publisher.Signal(syscall.SIGCONT)
		pause(rnd, 0, 500*time.Millisecond)
	}
	return func() {}
}

func publisherKilled(s *stage, rnd *rand.Rand) (heal func()) {
	s.publisher.Kill()
	pause(rnd, 0, 2*time.Second)
	return s.publisher.starts
}
