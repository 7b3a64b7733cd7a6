// Package rig serves the tests of the blocklist's packages. What goes wrong ends the test.
package rig

import (
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// Most scales the size of a test: to a tenth of n, unless it runs on a real Redis that was started for it. In
// miniredis each script takes a thousand times as long.
func Most(t *testing.T, n int) int {
	if os.Getenv("TALLYGATE_TEST_REDIS") == "" || strings.HasSuffix(t.Name(), "/miniredis") {
		return n / 10
	}
	return n
}

// Quiet is a log that discards its lines.
func Quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
