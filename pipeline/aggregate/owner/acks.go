package owner

import (
	"sync"
	"sync/atomic"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// acks are acknowledgements on their way from the writers' goroutines to the shard. A writer does
// not wait for the partition's lock.
type acks struct {
	mu   sync.Mutex
	list []acked
	some atomic.Bool
	wake chan struct{} // holds one after some have arrived
}

type acked struct {
	of     *shard.Ack
	offset int64
}

func (s *acks) add(a acked) {
	s.mu.Lock()
	s.list = append(s.list, a)
	first := len(s.list) == 1
	s.some.Store(true)
	s.mu.Unlock()
	if !first {
		return
	}
	ring(s.wake)
}

func (s *acks) take() []acked {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list
	s.list = nil
	s.some.Store(false)
	return list
}
