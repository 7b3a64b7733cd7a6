package enforcer

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/logline"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

type said struct{ testrun.Output }

// has returns the last line with this msg; nil when there is none.
func (s *said) has(t *testing.T, msg string) (last map[string]any) {
	for line := range strings.Lines(s.String()) {
		values, err := logline.Parse([]byte(line))
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if values["msg"] == msg {
			last = values
		}
	}
	return last
}

// TestTheLogTellsItsLife: start, ready, the switch, an outage of Redis and the stop, and every line
// has the schema.
func TestTheLogTellsItsLife(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	off := filepath.Join(t.TempDir(), "off")
	log := &said{}
	ctx, stop := context.WithCancel(t.Context())
	status := make(chan int, 1)
	go func() {
		status <- Command(ctx, []string{"--redis", server.Addr(), "--off-file", off, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
			"--grpc-listen", "127.0.0.1:0", "--log-level", "debug"}, io.Discard, log, testrun.NoEnv)
	}()
	tells := func(msg string) {
		t.Helper()
		testrun.Eventually(t, "the log says "+msg, func() bool { return log.has(t, msg) != nil })
	}
	tells("starting")
	start := log.has(t, "starting")
	for _, name := range []string{"program", "program_version", "redis", "listen", "grpc_listen", "metrics_listen"} {
		if start[name] == nil {
			t.Errorf("starting, without %s: %v", name, start)
		}
	}
	if log.has(t, "ready") != nil {
		t.Error("ready, and nothing was published yet")
	}
	publish(t, server.Addr())
	tells("ready")
	if err := os.WriteFile(off, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tells("enforcement is off: every check is allowed")
	if err := os.Remove(off); err != nil {
		t.Fatal(err)
	}
	tells("enforcement is on again")
	server.Close()
	tells("following the blocklist in Redis is interrupted; retrying")
	stop()
	if s := <-status; s != ops.ExitOK {
		t.Errorf("status %d", s)
	}
	if log.has(t, "stopping")["reason"] == nil || log.has(t, "stopped")["took_seconds"] == nil {
		t.Errorf("the end: %s", log)
	}
}

// TestTheLogTellsWhyItEnds, in one line of its schema, and not in plain text over several.
func TestTheLogTellsWhyItEnds(t *testing.T) {
	server := miniredis.RunT(t)
	log := &said{}
	status := Command(testrun.Context(t), []string{"--redis", server.Addr(), "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--grpc-listen", "none", "--shards", "-1"},
		io.Discard, log, testrun.NoEnv)
	end := log.has(t, "the program failed")
	if status != ops.ExitUsage || end["level"] != "ERROR" || end["error"] == nil || end["status"] != 2.0 {
		t.Errorf("status %d, %v", status, end)
	}
}
