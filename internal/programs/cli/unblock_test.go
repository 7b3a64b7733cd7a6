package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/testing/testrun"
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
		ended <- cli.Main(ctx, args, stdin, &stdout, stderr, testrun.NoEnv)
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

// Each key was a command of its own, at some hundreds a second, with two entries in the audit.
func TestUnblockAllSendsBatches(t *testing.T) {
	const keys = 2500
	var mu sync.Mutex
	var batches []int
	seen := map[string]bool{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/blocked", func(w http.ResponseWriter, r *http.Request) {
		var page struct {
			Partitions int              `json:"partitions"`
			Keys       []map[string]any `json:"keys"`
		}
		page.Partitions = 2
		for i := range keys {
			if p := r.URL.Query().Get("partition"); p == strconv.Itoa(i%2) {
				page.Keys = append(page.Keys, map[string]any{"key": map[string]string{"uid": fmt.Sprint(i)}, "rules": []string{"search"}})
			}
		}
		_ = json.NewEncoder(w).Encode(page)
	})
	mux.HandleFunc("POST /v1/commands", func(w http.ResponseWriter, r *http.Request) {
		var c struct {
			Command, Reason string
			Keys            []map[string]string
		}
		err := json.NewDecoder(r.Body).Decode(&c)
		mu.Lock()
		defer mu.Unlock()
		batches = append(batches, len(c.Keys))
		for _, key := range c.Keys {
			seen[key["uid"]] = true
		}
		if err != nil || r.ContentLength > 64<<10 || c.Command != "unblock" {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = io.WriteString(w, `{"id": "ID", "verdicts": []}`)
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	var stdout, stderr bytes.Buffer
	args := []string{"unblock", "--all", "--reason", "x", "--aggregator", strings.TrimPrefix(srv.URL, "http://")}
	if status := cli.Main(testrun.Context(t), args, strings.NewReader("y\n"), &stdout, &stderr, testrun.NoEnv); status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr.String())
	}
	slices.Sort(batches)
	if want := []int{250, 250, 1000, 1000}; !slices.Equal(batches, want) || len(seen) != keys || stdout.String() != "2500 of 2500 keys unblocked\n" {
		t.Errorf("batches of %v, %d keys in all: %s", batches, len(seen), stdout.String())
	}
}
