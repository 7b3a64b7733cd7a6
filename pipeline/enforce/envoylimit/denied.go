package envoylimit

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/tallygate/tallygate/pipeline/enforce"
)

// answer is an HTTP response that is sent within a message. enforce.Answers writes to it.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// denied answers a denied request. asked says that an Admitter denied it, and not the table: what is
// in doubt may then be tried again.
func denied(answers *enforce.Answers, d enforce.Decision, r *http.Request, asked bool) *answer {
	a := &answer{header: http.Header{}}
	if asked && d.Unavailable() {
		a.header.Set("Retry-After", "1")
	}
	answers.Write(a, r, d, "")
	return a
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

// names returns the names of its headers, in order.
func (a *answer) names() []string { return slices.Sorted(maps.Keys(a.header)) }

// values returns its headers, in order.
func (a *answer) values() (all []*corev3.HeaderValue) {
	for _, name := range a.names() {
		all = append(all, &corev3.HeaderValue{Key: strings.ToLower(name), Value: a.header.Get(name)})
	}
	return all
}
