// Package seldom keeps the log from being filled by those who ask: what each of their requests would say is said once in a while, with how often
// it happened meanwhile.
package seldom

import (
	"sync"
	"time"
)

// Every is how often one thing is said.
const Every = time.Minute

// Line is one thing that is said. The zero value is ready; it is safe for use by many goroutines.
type Line struct {
	mu   sync.Mutex
	said time.Time
	left int
}

// Due reports whether it is to be said now, and how often it was left out since it was said last.
func (l *Line) Due() (leftOut int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.said.IsZero() && now.Sub(l.said) < Every {
		l.left++
		return 0, false
	}
	leftOut, l.said, l.left = l.left, now, 0
	return leftOut, true
}
