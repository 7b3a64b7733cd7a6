// Package logonce rate-limits repeated log lines: whoever sends requests cannot fill the log. A line appears at most once
// in Every, with the number of times it was left out meanwhile.
package logonce

import (
	"sync"
	"time"
)

// Every is the least time between two lines that say the same.
const Every = time.Minute

// Line limits one line of the log. The zero value is ready; it is safe for use by many goroutines.
type Line struct {
	mu   sync.Mutex
	said time.Time
	left int
}

// Due reports whether the line is to be written now, and how often it was left out since it was written last.
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
