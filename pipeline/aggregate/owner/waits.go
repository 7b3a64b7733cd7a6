package owner

import (
	"sync"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/verdict"
)

// waits are the commands that callers in this process wait for. The zero value is ready to use.
type waits struct {
	mu sync.Mutex
	by map[string]*wait // by the command's id
}

// wait is a command that is not done with all of its keys.
type wait struct {
	left int
	so   CommandResult
	ch   chan CommandResult
}

// CommandResult is the effect of a command.
type CommandResult struct {
	Keys     []string // that had a state
	Verdicts []verdict.Verdict
}

func (s *waits) await(id string, keys int) <-chan CommandResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string]*wait{}
	}
	w := &wait{left: keys, ch: make(chan CommandResult, 1)}
	s.by[id] = w
	return w.ch
}

func (s *waits) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.by, id)
}

// left returns on how many of its keys a command is not done yet; if no caller waits for it, that
// is all keys.
func (s *waits) left(id string, keys int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.by[id]; w != nil {
		return w.left
	}
	return keys
}

// open returns on how many keys commands are not done yet. ok reports whether there are commands.
func (s *waits) open() (keys int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.by {
		keys += w.left
	}
	return keys, len(s.by) > 0
}

// done notes that a command is done with one of its keys.
func (s *waits) done(d *shard.Done) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.by[d.ID]
	if w == nil {
		return
	}
	if d.Had {
		w.so.Keys = append(w.so.Keys, d.Key)
	}
	w.so.Verdicts = append(w.so.Verdicts, d.Verdicts...)
	if w.left--; w.left == 0 {
		w.ch <- w.so
		delete(s.by, d.ID)
	}
}
