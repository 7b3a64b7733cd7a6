// Package testrun serves the tests of many packages: waiting for a condition, running something until the test ends,
// a log that is read while it is written, and seeds. It imports the standard library alone, so that every package's
// tests can use it.
package testrun

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds the wait of a slow machine, with real servers beside the test.
const patience = 3 * time.Minute

// Eventually waits until ok. A condition that is not met in three minutes ends the test.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v it is still not so that %s", patience, what)
		}
	}
}

// Start runs something until the returned function, or the end of the test, stops it. An error
// fails the test.
func Start(t testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Context is the context of a command that a test runs: t.Context(), and it ends after three minutes, which fails the
// test. A command that waits for what never comes does not hold up the whole package.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("after %v a command had to be stopped", patience)
		}
		cancel()
	})
	return ctx
}

// apart is the variable that package ops knows: commands do not use default addresses, at which something else may
// run.
const apart = "TALLYGATE_TEST_APART"

// NoEnv is the environment of a command that a test runs: nothing is set, and it meets nothing else that runs on the
// machine.
func NoEnv(name string) string { return Env(nil)(name) }

// Env is NoEnv with variables.
func Env(set map[string]string) func(name string) string {
	return func(name string) string {
		if name == apart {
			return "1"
		}
		return set[name]
	}
}

// Getenv is the environment of a command that a test runs in a process of its own: os.Getenv, and otherwise NoEnv.
func Getenv(name string) string {
	if name == apart {
		return "1"
	}
	return os.Getenv(name)
}

// Seed returns TALLYGATE_TEST_SEED, or a new seed. The test's log says which, to run it again.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("TALLYGATE_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("TALLYGATE_TEST_SEED=%s: %v", text, err)
		}
	}
	t.Logf("TALLYGATE_TEST_SEED=%d", seed)
	return seed
}

// Output is a log, or what a program prints, that a test reads while it is written. The zero value
// is empty and ready to use.
type Output struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write adds to it.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// Logger returns a log that writes to it.
func (o *Output) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(o, nil)) }

// String returns all that was written.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Has reports whether a text was written.
func (o *Output) Has(text string) bool { return o.Count(text) > 0 }

// Count returns how often a text was written.
func (o *Output) Count(text string) int { return strings.Count(o.String(), text) }

// Allocs is testing.AllocsPerRun without what others allocate meanwhile: goroutines that tests before have left to end,
// and the collector, which empties pools. It is the least of a few measurements.
func Allocs(runs int, f func()) float64 {
	least := testing.AllocsPerRun(runs, f)
	for range 4 {
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}
