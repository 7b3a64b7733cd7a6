package grpclimit

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// A throttled user who opens a thousand calls must not hold a thousand goroutines.
func TestFewCallsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, err := enforce.NewTable(enforce.Config{})
		if err != nil {
			t.Fatal(err)
		}
		v := blocked("uid", "42", "*", verdict.ActThrottle)
		v.Until, v.Limit, v.Per = v.Since+event.Second, 10*event.One, event.Second
		table.Replace(0, []verdict.Verdict{v})
		l, err := New(table, Options{UID: func(context.Context) string { return "42" }, MaxDelay: 2 * time.Second, MaxDelayed: 3})
		if err != nil {
			t.Fatal(err)
		}
		var passed, denied atomic.Int32
		for range 10 {
			go func() {
				_, err := l.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(context.Context, any) (any, error) { return 1, nil })
				switch {
				case err == nil:
					passed.Add(1)
				case status.Code(err) == codes.ResourceExhausted:
					denied.Add(1)
				}
			}()
		}
		synctest.Wait()
		if denied.Load() != 7 || passed.Load() != 0 {
			t.Errorf("%d denied and %d let through at once, want 7 and 0", denied.Load(), passed.Load())
		}
		time.Sleep(time.Second)
		for want := int32(1); want <= 3; want++ { // one by one, at the limit's rate
			synctest.Wait()
			if passed.Load() != want {
				t.Errorf("%d let through after %v, want %d", passed.Load(), time.Second+time.Duration(want-1)*100*time.Millisecond, want)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

func TestALimiterNeedsATable(t *testing.T) {
	_, err := New(nil, Options{MaxDelayed: -1})
	if err == nil || !strings.Contains(err.Error(), "table") || !strings.Contains(err.Error(), "UID") {
		t.Errorf("error %v, want one about the table and one about who", err)
	}
}
