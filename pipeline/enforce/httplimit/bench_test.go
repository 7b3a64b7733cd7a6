package httplimit

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// BenchmarkAllowed is a request that the middleware lets through, without the handler: one of a user
// who has no verdict, as nearly all are, and one whose verdict is of another API.
func BenchmarkAllowed(b *testing.B) {
	table := newTable(b)
	table.Replace(0, []verdict.Verdict{block("r", "uid=42", func(v *verdict.Verdict) { v.Since, v.APIs = 0, []string{"order.*"} })})
	handler := Middleware(table, Options{
		UID: func(r *http.Request) string { return r.Header.Get("X-User") },
		API: func(*http.Request) string { return "search.query" },
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for name, user := range map[string]string{"nobody": "nobody", "another API": "42"} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "/orders/1", nil)
			r.Header.Set("X-User", user)
			w := httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				handler.ServeHTTP(w, r)
			}
		})
	}
}

// dropped takes events, and keeps none.
type dropped struct{}

func (dropped) Emit(event.Event) bool { return true }

// BenchmarkEmitted is a request whose event is emitted: what the gate costs a service that leaves the
// emitting to it, without the emitter.
func BenchmarkEmitted(b *testing.B) {
	handler := Middleware(newTable(b), Options{
		UID: func(r *http.Request) string { return r.Header.Get("X-User") }, API: Constant("search.query"), Events: dropped{},
	})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	r := httptest.NewRequest("GET", "/orders/1", nil)
	r.Header.Set("X-User", "42")
	w := httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		handler.ServeHTTP(w, r)
	}
}
