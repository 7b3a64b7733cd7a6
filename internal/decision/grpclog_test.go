package decision_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/grpclog"

	"github.com/tallygate/tallygate/internal/logline"
	"github.com/tallygate/tallygate/internal/ops"
)

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.SplitAfter(strings.TrimSuffix(b.text.String(), "\n"), "\n")
}

// TestGRPCLogsIntoTheLog: its errors were text on standard error, beside a log of JSON, as many as
// a client liked.
func TestGRPCLogsIntoTheLog(t *testing.T) {
	var out lockedBuffer
	log, err := ops.NewLogger(&out, "info", "json")
	if err != nil {
		t.Fatal(err)
	}
	was := slog.Default()
	slog.SetDefault(log)
	t.Cleanup(func() { slog.SetDefault(was) })
	component := grpclog.Component("transport")
	for range 1000 {
		component.Errorf("Got too many pings from the client %d,\nclosing the connection.", 7)
		component.Warning("not told")
		component.Info("not told")
	}
	lines := out.lines()
	if len(lines) != 1 {
		t.Fatalf("%d lines: %.300q", len(lines), lines)
	}
	line, err := logline.Parse([]byte(lines[0] + "\n"))
	if text, _ := line["error"].(string); err != nil || line["level"] != "WARN" || !strings.Contains(text, "too many pings from the client 7,; closing") {
		t.Errorf("%v: %s", err, lines[0])
	}
}
