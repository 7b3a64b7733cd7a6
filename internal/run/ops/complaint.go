package ops

import (
	"log/slog"
	"sync"
)

// complaint logs what is wrong with files that are read again and again: once, and that they are good again.
type complaint struct {
	log func() *slog.Logger // nil, or returns nil: nobody listens

	mu   sync.Mutex
	last string // what was wrong; "" is nothing
}

// note takes the outcome of a reading.
func (c *complaint) note(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	c.mu.Lock()
	was := c.last
	c.last = text
	c.mu.Unlock()
	if was == text || c.log == nil {
		return
	}
	log := c.log()
	switch {
	case log == nil:
	case err != nil:
		log.Warn("a file that was replaced cannot be used; what it held before is used on", "error", err)
	default:
		log.Info("a replaced file can be used again")
	}
}
