package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

type events []event.Event

func (e *events) Emit(ev event.Event) bool { *e = append(*e, ev); return true }

// What the page shows: one middleware that limits by business names, answers in the caller's
// language, emits, and is closed for orders until it knows.
func TestGuard(t *testing.T) {
	table, err := newTable()
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	ok := func(http.ResponseWriter, *http.Request) {}
	mux.HandleFunc("GET /search/{query}", ok)
	mux.HandleFunc("POST /orders", ok)
	var emitted events
	handler := guard(table, mux, &emitted)
	status := func(method, path, user string) int {
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("X-User", user)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}
	if a, b := status("POST", "/orders", "7"), status("GET", "/search/x", "7"); a != 503 || b != 200 {
		t.Errorf("before the first snapshot an order is answered %d, and a search %d, want 503 and 200", a, b)
	}
	at := event.FromTime(time.Now())
	table.Replace(0, []verdict.Verdict{{
		Rule: "search-combined", Key: []event.Dim{{Name: "uid", Value: "42"}}, Action: verdict.ActBlock,
		APIs: []string{"search.*"}, Since: at, Until: at + event.Minute,
	}})
	table.Heartbeat(0, at)
	emitted = nil
	if a, b := status("GET", "/search/x", "42"), status("POST", "/orders", "42"); a != 429 || b != 200 {
		t.Errorf("a blocked search is answered %d, an order %d, want 429 and 200", a, b)
	}
	if len(emitted) != 1 || emitted[0].API != "order.create" || emitted[0].UID != "42" {
		t.Errorf("emitted %+v, want the order", emitted)
	}
}
