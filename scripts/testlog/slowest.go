package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	slowestShown = 12
	slowAtLeast  = 5 // seconds
)

// timed is how long a test took, without the time in which it waited for its turn to run beside others.
type timed struct {
	test    string
	seconds float64
}

// slowest are the tests that a run's length comes from. Subtests are part of theirs.
type slowest []timed

func (s *slowest) add(e event) {
	if e.Test != "" && !strings.Contains(e.Test, "/") && e.Elapsed >= slowAtLeast {
		*s = append(*s, timed{e.Package + " " + e.Test, e.Elapsed})
	}
}

func (s slowest) print(out io.Writer) {
	slices.SortStableFunc(s, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, t := range s[:min(len(s), slowestShown)] {
		fmt.Fprintf(out, "%7.1f s  %s\n", t.seconds, t.test)
	}
}
