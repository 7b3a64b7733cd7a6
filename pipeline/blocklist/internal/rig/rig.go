// Package rig is what the tests of the blocklist's packages share. What goes wrong ends the test.
package rig

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// Most is how large a test is that is n in size: a tenth of that, unless it runs on a real Redis
// that was started for it. In miniredis each script takes a thousand times as long.
func Most(t *testing.T, n int) int {
	if os.Getenv("TALLYGATE_TEST_REDIS") == "" || strings.HasSuffix(t.Name(), "/miniredis") {
		return n / 10
	}
	return n
}

// FreeAddr is an address that nobody listens on.
func FreeAddr(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Eventually waits until ok.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute it is still not so that %s", what)
		}
	}
}

// Quiet is a log that nobody reads.
func Quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// Start runs something until the returned function, or the end of the test, stops it.
func Start(t testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
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

// Lines is a log that a test reads.
type Lines struct {
	mu   sync.Mutex
	text strings.Builder
}

// Logger is a log that writes to it.
func (l *Lines) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Write adds a line.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is all that was written.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Has reports whether it has this.
func (l *Lines) Has(text string) bool { return l.Count(text) > 0 }

// Count is how often it has a text.
func (l *Lines) Count(text string) int { return strings.Count(l.String(), text) }
