package cli_test

import (
	"bytes"
	"context"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/cli"
)

// Ctrl-C at the question did nothing: the command waited for an answer, and only SIGKILL ended it.
func TestCtrlCAtTheQuestionUnblocksNobody(t *testing.T) {
	srv := httptest.NewServer(fakeAggregator())
	t.Cleanup(srv.Close)
	stdin, terminal := io.Pipe() // nobody types
	t.Cleanup(func() { terminal.Close() })
	ctx, interrupt := context.WithCancel(t.Context())
	var stdout bytes.Buffer
	stderr := &watched{asked: make(chan struct{})}
	ended := make(chan int)
	go func() {
		args := []string{"unblock", "--all", "--reason", "x", "--aggregator", strings.TrimPrefix(srv.URL, "http://")}
		ended <- cli.Main(ctx, args, stdin, &stdout, stderr, func(string) string { return "" })
	}()
	select {
	case <-stderr.asked:
	case <-time.After(time.Minute):
		t.Fatal("it never asks")
	}
	interrupt()
	select {
	case status := <-ended:
		if status != 1 || stdout.Len() > 0 || !strings.Contains(stderr.text(), "nothing was done: interrupted") {
			t.Errorf("status %d, %q, %q", status, stdout.String(), stderr.text())
		}
	case <-time.After(time.Minute):
		t.Fatal("it never ends")
	}
}

// watched tells when the question was written.
type watched struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	asked chan struct{}
	once  sync.Once
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(b)
	if strings.Contains(w.buf.String(), "(y/n)") {
		w.once.Do(func() { close(w.asked) })
	}
	return len(b), nil
}

func (w *watched) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}
