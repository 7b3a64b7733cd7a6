package envoylimit

import (
	"bytes"
	"maps"
	"net/http"
	"slices"

	"github.com/tallygate/tallygate/pipeline/enforce"
)

// answer is an HTTP response that is sent within a message. enforce.Answers writes to it.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func denied(answers *enforce.Answers, d enforce.Decision, r *http.Request) *answer {
	a := &answer{header: http.Header{}}
	answers.Write(a, r, d, "")
	return a
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

// names returns the names of its headers, in order.
func (a *answer) names() []string { return slices.Sorted(maps.Keys(a.header)) }
