package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// What README shows: five searches and suggestions a minute together, and three coupons a day. The whole
// way from the middleware's event to its 429 is made by one constructor.
func TestQuickstart(t *testing.T) {
	stack, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{}) // it ends after its users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stack.Close)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	var log bytes.Buffer
	running.Go(func() {
		args := []string{"--kafka", stack.Kafka[0], "--redis", stack.Redis, "--rules", "../../internal/programs/dev/rules.yaml", "--partitions", "2",
			"--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--log-level", "error"}
		if status := aggregator.Command(ctx, args, io.Discard, &log, testrun.NoEnv); status != 0 {
			t.Errorf("the aggregator ends with %d: %s", status, &log)
		}
	})
	guard := open(t.Context(), stack.Redis, stack.Kafka[0])
	t.Cleanup(func() {
		last, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := guard.Close(last); err != nil {
			t.Error(err)
		}
	})
	if err := guard.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	search := limited(guard, "search.query", answering("results\n"))
	suggest := limited(guard, "search.suggest", answering("suggestions\n"))
	coupon := limited(guard, "coupon.redeem", answering("a coupon\n"))
	visit := func(h http.Handler, user string) int {
		r := httptest.NewRequest("POST", "/", strings.NewReader("abc"))
		r.Header.Set("X-User", user)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for i := range 6 {
		if status := visit([]http.Handler{search, suggest}[i%2], "42"); status != http.StatusOK {
			t.Fatalf("visit %d is answered %d", i, status)
		}
	}
	testrun.Eventually(t, "the sixth is over the limit, and its verdict denies both", func() bool {
		return guard.Check("search.query", "42").Rule() == "search-combined" && visit(suggest, "42") == http.StatusTooManyRequests
	})
	if status := visit(search, "43"); status != http.StatusOK {
		t.Errorf("somebody else is answered %d", status)
	}
	given := 0
	testrun.Eventually(t, "there are no more coupons", func() bool {
		status := visit(coupon, "42")
		if status == http.StatusOK {
			given++
		}
		return status == http.StatusTooManyRequests
	})
	if given != 3 {
		t.Errorf("%d coupons were given, want three", given)
	}
	if visit(uploading(guard), "42"); guard.Stats().Events.Dropped.Total() > 0 {
		t.Errorf("%+v", guard.Stats().Events)
	}
}
