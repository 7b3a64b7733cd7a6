package decision_test

import (
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/grpclog"

	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/logline"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// TestGRPCLogsIntoTheLog: its errors were text on standard error, beside a log of JSON, as many as
// a client liked.
func TestGRPCLogsIntoTheLog(t *testing.T) {
	var out testrun.Output
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
	lines := strings.SplitAfter(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 1 {
		t.Fatalf("%d lines: %.300q", len(lines), lines)
	}
	line, err := logline.Parse([]byte(lines[0] + "\n"))
	if text, _ := line["error"].(string); err != nil || line["level"] != "WARN" || !strings.Contains(text, "too many pings from the client 7,; closing") {
		t.Errorf("%v: %s", err, lines[0])
	}
}
