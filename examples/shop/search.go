package main

import (
	"fmt"
	"net/http"

	"github.com/tallygate/tallygate/event"
)

// search serves search and suggest; both count under one limit.
func search(s *shop) http.Handler {
	answering := func(api, answer string) http.Handler {
		return s.limited(func(*http.Request) string { return api }, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(w, answer)
			s.emitter.Emit(event.Event{UID: user(r), API: api, Outcome: "success"})
		})
	}
	mux := http.NewServeMux()
	mux.Handle("GET /search", answering("search.query", "results"))
	mux.Handle("GET /suggest", answering("search.suggest", "suggestions"))
	return mux
}
