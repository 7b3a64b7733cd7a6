package ops_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/internal/run/ops"
)

// What a program says while it is refused: at once, then each minute, and when that is over. It is
// ready for a grace, and when it is let in.
func TestRefusalsAreSaidEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a ops.Access
		var mu sync.Mutex
		var said []string
		log := slog.New(slog.NewTextHandler(lines(func(line string) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, line)
		}), nil))
		count := func(part string) (n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, line := range said {
				if strings.Contains(line, part) {
					n++
				}
			}
			return n
		}
		var let atomic.Bool
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.Run(ctx, "Kafka", log, func(context.Context) error {
				if let.Load() {
					return nil
				}
				return &ops.Refusal{Err: errors.New("wrong password")}
			})
		}()
		a.Note(errors.New("connection refused")) // the network's business
		synctest.Wait()
		if len(said) != 0 || a.Ready("Kafka") != nil {
			t.Errorf("a network's error: %q, %v", said, a.Ready("Kafka"))
		}
		a.Note(&ops.Refusal{Err: errors.New("wrong password")})
		synctest.Wait()
		if count("Kafka refuses us") != 1 || a.Ready("Kafka") != nil {
			t.Errorf("at once: %q, %v", said, a.Ready("Kafka"))
		}
		time.Sleep(10*time.Minute + time.Second)
		if err := a.Ready("Kafka"); count("Kafka refuses us") != 11 || err == nil || !strings.Contains(err.Error(), "wrong password") {
			t.Errorf("after ten minutes: said %d times; %v", count("Kafka refuses us"), err)
		}
		let.Store(true)
		time.Sleep(3 * time.Second)
		if count("accepts us again") != 1 || a.Ready("Kafka") != nil {
			t.Errorf("let in: %q, %v", said, a.Ready("Kafka"))
		}
		stop()
		<-done
	})
}

type lines func(string)

func (l lines) Write(b []byte) (int, error) { l(string(b)); return len(b), nil }
