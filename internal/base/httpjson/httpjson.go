// Package httpjson writes the JSON answers of the HTTP APIs. A client that went away is no error of
// ours, so nothing is returned.
package httpjson

import (
	"encoding/json"
	"net/http"

	"github.com/tallygate/tallygate/api"
)

// Reply answers 200 with a body.
func Reply(w http.ResponseWriter, body any) { write(w, "application/json", http.StatusOK, body) }

// Problem answers with RFC 9457's problem+json.
func Problem(w http.ResponseWriter, status int, detail string) {
	write(w, "application/problem+json", status, api.NewProblem(status, detail))
}

func write(w http.ResponseWriter, kind string, status int, body any) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
