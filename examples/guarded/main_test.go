package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

type events []event.Event

func (e *events) Emit(ev event.Event) bool { *e = append(*e, ev); return true }

// admitter lets nobody place an order who has placed his last one.
type admitter struct{}

func (admitter) Idle() bool { return false }

func (admitter) AdmitRequest(_ context.Context, r enforce.Request) (enforce.Admission, error) {
	if r.API == "order.create" && r.Dims[0].Value == "9" {
		return enforce.Admission{Decision: enforce.Refuse(&verdict.Verdict{Rule: "last", Action: verdict.ActBlock}, time.Minute)}, nil
	}
	return enforce.Admission{Decision: enforce.Decision{Allowed: true}, Permit: event.Permit{ID: "p", At: 7}}, nil
}

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
	handler := guard(table, mux, admitter{}, &emitted)
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
	if a, b := status("POST", "/orders", "9"), status("GET", "/search/x", "9"); a != 429 || b != 200 {
		t.Errorf("an order without a permit is answered %d, a search %d, want 429 and 200", a, b)
	}
	emitted = slices.DeleteFunc(emitted, func(e event.Event) bool { return e.Outcome == event.OutcomeLimited }) // what was denied tells, and counts nothing
	if len(emitted) != 2 || emitted[0].API != "order.create" || emitted[0].UID != "42" || emitted[1].UID != "9" || emitted[1].Permit.ID != "p" {
		t.Errorf("emitted %+v, want the order and the search, with their permits", emitted)
	}
}
