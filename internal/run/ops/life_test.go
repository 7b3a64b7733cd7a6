package ops

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// slowLog keeps messages. Each takes a second to be written.
type slowLog struct {
	slog.Handler
	messages []string
}

func (l *slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *slowLog) Handle(_ context.Context, r slog.Record) error {
	time.Sleep(time.Second)
	l.messages = append(l.messages, r.Message)
	return nil
}

// TestTheEndIsTheLastLine: a program that ends at once when it is told to says so first.
func TestTheEndIsTheLastLine(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		log := &slowLog{Handler: slog.DiscardHandler}
		status := Live(ctx, slog.New(log), "test", nil, func(ctx context.Context) error {
			stop()
			<-ctx.Done()
			return nil
		})
		if want := []string{"starting", "stopping", "stopped"}; status != ExitOK || !slices.Equal(log.messages, want) {
			t.Errorf("status %d, %q, want %q", status, log.messages, want)
		}
	})
}
