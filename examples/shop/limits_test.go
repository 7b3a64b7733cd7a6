package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tallygate/tallygate/tallygatetest"
)

// Five searches a minute are the limit, and the sixth exceeds it: who searches on is denied for half a
// minute. The shop's own handlers and rules, without Kafka and Redis, and a clock to move.
func TestWhoSearchesTooMuchIsDenied(t *testing.T) {
	h := tallygatetest.New(t, "rules.yaml")
	handler := search(&shop{table: h.Table(), emitter: h.Emitter(), admitter: h.Admitter()})
	visit := func(user string) int {
		r := httptest.NewRequest(http.MethodGet, "/search", nil)
		r.Header.Set("X-User", user)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}
	for range 6 {
		if status := visit("7"); status != http.StatusOK {
			t.Fatalf("a search within the limit: %d", status)
		}
	}
	if status := visit("7"); status != http.StatusTooManyRequests {
		t.Errorf("the seventh search: %d", status)
	}
	if !h.Blocked("uid=7", "search.suggest") || h.Blocked("uid=8", "search.suggest") {
		t.Error("both searches count together, each user for himself")
	}
	h.Advance(time.Minute)
	if status := visit("7"); status != http.StatusOK {
		t.Errorf("a minute later: %d", status)
	}
}

// A coupon is good for five orders a day in Shanghai, whoever places them, and not for a sixth. What is not
// paid does not count.
func TestACouponIsRedeemedFiveTimes(t *testing.T) {
	h := tallygatetest.New(t, "rules.yaml")
	handler := coupons(&shop{table: h.Table(), emitter: h.Emitter(), admitter: h.Admitter()})
	redeem := func(total string) int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/coupons/WELCOME?total="+total, nil))
		return w.Code
	}
	for _, total := range []string{"20", "5000", "20", "5000", "20", "20", "20"} {
		if status := redeem(total); status == http.StatusTooManyRequests {
			t.Fatalf("an order within the limit: %d", status)
		}
	}
	if status := redeem("20"); status != http.StatusTooManyRequests {
		t.Errorf("the sixth order: %d", status)
	}
	if n := h.Count("coupon-uses", "attrs.coupon=WELCOME"); n != 5 {
		t.Errorf("%v orders are counted", n)
	}
	h.AdvanceTo(time.Date(2026, time.January, 5, 16, 0, 0, 0, time.UTC)) // midnight in Shanghai
	if status := redeem("20"); status != http.StatusOK {
		t.Errorf("the next day: %d", status)
	}
}
