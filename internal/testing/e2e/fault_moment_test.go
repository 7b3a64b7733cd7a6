package e2e

import (
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
)

// checkpointKey is the key of checkpoint records in the changelog.
const checkpointKey = "\x00checkpoint"

// momentFaults end or pause a program at a moment that its conversation with Kafka shows.
func momentFaults() []*fault {
	at := func(name string, m func(s *stage) *moment) *fault {
		return &fault{kind: ofAggregator, name: "killed " + name, strike: func(s *stage, rnd *rand.Rand) func() {
			return killedAt(s, s.pick(rnd), m(s))
		}}
	}
	starting := func(name string, m func(s *stage) *moment) *fault {
		return &fault{kind: ofAggregator, name: "killed " + name, strike: func(s *stage, rnd *rand.Rand) func() {
			p := s.pick(rnd)
			p.Kill()
			armed := m(s)
			p.net.arm(armed)
			p.Start()
			return s.killedWhen(p, armed)
		}}
	}
	return []*fault{
		starting("before its fence record is acknowledged", func(s *stage) *moment {
			return &moment{match: appends(s.names.Table, fenced.IsFence), after: true}
		}),
		starting("between fence and recovery", func(s *stage) *moment {
			return &moment{match: fetches(s.names.Table)}
		}),
		starting("during recovery", func(s *stage) *moment {
			return &moment{match: fetches(s.names.Table), after: true, nth: 1}
		}),
		at("between a state's write and its verdict", func(s *stage) *moment {
			return &moment{match: appends(s.names.Verdicts, noOwnKey)}
		}),
		at("between a verdict and its acknowledgement", func(s *stage) *moment {
			return &moment{match: appends(s.names.Verdicts, noOwnKey), after: true}
		}),
		at("in the middle of a checkpoint's states", func(s *stage) *moment {
			return &moment{match: appendsSeveral(s.names.Table), nth: 1}
		}),
		at("before the checkpoint record", func(s *stage) *moment {
			return &moment{match: appends(s.names.Table, keyIs(checkpointKey))}
		}),
		at("between a checkpoint record and its acknowledgement", func(s *stage) *moment {
			return &moment{match: appends(s.names.Table, keyIs(checkpointKey)), after: true}
		}),
		at("between a checkpoint and the group's offsets", func(*stage) *moment {
			return &moment{match: commits}
		}),
		at("between a forward and its acknowledgement", func(s *stage) *moment {
			return &moment{match: appends(s.names.Loop, noOwnKey), after: true}
		}),
		zombie("a verdict", func(s *stage) *moment {
			return &moment{match: appends(s.names.Verdicts, noOwnKey)}
		}),
		zombie("states", func(s *stage) *moment {
			return &moment{match: appends(s.names.Table, noOwnKey)}
		}),
		zombie("a checkpoint record", func(s *stage) *moment {
			return &moment{match: appends(s.names.Table, keyIs(checkpointKey))}
		}),
		zombie("forwards", func(s *stage) *moment {
			return &moment{match: appends(s.names.Loop, noOwnKey)}
		}),
	}
}

// killedAt kills a program that works, at a moment.
func killedAt(s *stage, p *member, m *moment) (heal func()) {
	p.awaitReady()
	p.net.arm(m)
	return s.killedWhen(p, m)
}

// killedWhen kills a program when the moment has come, and loses what was held. A program that
// is ready, and still hasn't come there after seconds of events, is killed anyway.
func (s *stage) killedWhen(p *member, m *moment) (heal func()) {
	s.t.Helper()
	select {
	case <-m.hit:
	case <-time.After(within / 4):
		s.t.Logf("%s did not come to that moment", p.name)
		s.missed++
		p.net.disarm()
	}
	p.Kill()
	m.drop()
	return p.starts
}

// zombie pauses an instance with a request on the wire, which arrives when others have its
// partitions.
func zombie(what string, m func(s *stage) *moment) *fault {
	return &fault{kind: ofAggregator, name: "paused and replaced with " + what + " on the wire", members: 2, alone: true,
		strike: func(s *stage, rnd *rand.Rand) (heal func()) {
			p := s.pick(rnd)
			armed := p.net.arm(m(s))
			select {
			case <-armed.hit:
			case <-time.After(within / 4):
				s.t.Logf("%s did not come to that moment", p.name)
				s.missed++
				p.net.disarm()
			}
			p.Signal(syscall.SIGSTOP)
			s.replaced(p)
			pause(rnd, 0, time.Second)
			armed.release()
			pause(rnd, 0, 200*time.Millisecond)
			return func() { p.Signal(syscall.SIGCONT) }
		}}
}
