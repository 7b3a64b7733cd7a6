package api

import "net/http"

// Problem is the body of every answer that refuses a request: problem+json of RFC 9457.
type Problem struct {
	Detail string `json:"detail"` // what to change
	Status int    `json:"status"`
	Title  string `json:"title"` // the status in words
	Type   string `json:"type"`  // about:blank
}

// NewProblem is a Problem of no type of its own.
func NewProblem(status int, detail string) Problem {
	return Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}
