package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

const (
	maxBody     = 4 << 20 // bytes of a request
	someTokens  = 1024    // of an answer, for requests that set no bound
	bytesAToken = 3       // of a prompt, about: for the time before the model has counted
)

// call is a request for a model, from its body to its usage.
type call struct {
	price  price
	prompt int64
	most   usage
}

type callKey struct{}

func callOf(r *http.Request) *call { c, _ := r.Context().Value(callKey{}).(*call); return c }

// proxy lets calls through to a model as far as their budgets go: it reserves the most that a call may cost, streams
// the answer, and settles by the usage that the model tells.
func proxy(model *url.URL, prices map[string]price, middleware func(httplimit.Options) func(http.Handler) http.Handler) http.Handler {
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(model)
			for _, name := range []string{"X-Org", "X-Team", "X-User", "X-Model"} {
				r.Out.Header.Del(name)
			}
		},
		ModifyResponse: meter,
		ErrorHandler:   unanswered,
		FlushInterval:  -1, // a token is passed on when it comes
	}
	limited := middleware(httplimit.Options{
		UID: httplimit.Header("X-User"), // a real service asks its authentication for all of these
		Attrs: map[string]func(*http.Request) string{
			"org": httplimit.Header("X-Org"), "team": httplimit.Header("X-Team"), "model": httplimit.Header("X-Model"),
		},
		API:     httplimit.Constant("llm.call"),
		Reserve: reserve,
		Denied:  denied,
	})(forward)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		c, err := read(w, r, prices)
		if err != nil {
			refuse(w, http.StatusBadRequest, "invalid_request_error", err.Error())
			return
		}
		limited.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
	})
	return mux
}

// reserve tells the most that a call may cost.
func reserve(r *http.Request) enforce.Reservation {
	c := callOf(r)
	return enforce.Reservation{Attrs: c.most.attrs(c.price)}
}

// note is the end of a call: its event says what was used, and the rest of its permit is free again.
func note(ctx context.Context, c *call, u usage) {
	for _, a := range u.attrs(c.price) {
		enforce.Note(ctx, enforce.Attr(a.Name, a.Value))
	}
}

// meter reads the usage of an answer while it passes. What a model has refused has used nothing.
func meter(answer *http.Response) error {
	c := callOf(answer.Request)
	if answer.StatusCode >= http.StatusBadRequest {
		note(answer.Request.Context(), c, usage{})
		return nil
	}
	m := &metered{ReadCloser: answer.Body, c: c, ctx: answer.Request.Context()}
	m.stream = strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream")
	answer.Body = m
	return nil
}

// unanswered ends a call without an answer. One that did not reach the model has used nothing; of others nobody
// knows, so all that was reserved counts.
func unanswered(w http.ResponseWriter, r *http.Request, err error) {
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		note(r.Context(), callOf(r), usage{})
	}
	log.Printf("the model does not answer: %v", err)
	refuse(w, http.StatusBadGateway, "server_error", "The model does not answer.")
}

// denied answers in the form that clients of OpenAI's API know.
func denied(w http.ResponseWriter, r *http.Request, d enforce.Decision) {
	status, header, p := (&enforce.Answers{}).Denial(d, enforce.DenialContext{})
	for name, values := range header {
		w.Header()[name] = values
	}
	kind := p.Rule
	if d.Unavailable() {
		kind = "server_error"
	}
	refuse(w, status, kind, p.Detail)
}

// refuse writes an error.
func refuse(w http.ResponseWriter, status int, kind, message string) {
	code := map[int]string{http.StatusTooManyRequests: "rate_limit_exceeded"}[status]
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": message, "type": kind, "code": code, "param": nil}})
}

// spelt refuses fields that some programs read as ones that are reserved by, and others don't, such as Max_Tokens:
// encoding/json takes capitals for small letters, and a model may have another of two such fields than this proxy.
func spelt(all map[string]json.RawMessage) error {
	for name := range all {
		for _, known := range []string{"model", "max_completion_tokens", "max_tokens", "n", "stream", "stream_options"} {
			if name != known && strings.EqualFold(name, known) {
				return fmt.Errorf("%q: write %s", name, known)
			}
		}
	}
	return nil
}

// read reads a request, and bounds its answer. Its body then asks for the usage of a stream.
func read(w http.ResponseWriter, r *http.Request, prices map[string]price) (*call, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	var q struct {
		Model     string `json:"model"`
		Most      *int64 `json:"max_completion_tokens"`
		MostOlder *int64 `json:"max_tokens"`
		N         int64  `json:"n"`
		Stream    bool   `json:"stream"`
	}
	if err := errors.Join(json.Unmarshal(body, &all), json.Unmarshal(body, &q)); err != nil {
		return nil, err
	}
	p, known := prices[q.Model]
	if !known {
		return nil, errors.New("there is no such model, or it has no price")
	}
	if err := spelt(all); err != nil {
		return nil, err
	}
	most := cmp.Or(q.Most, q.MostOlder)
	switch {
	case most == nil:
		most = new(int64)
		*most, all["max_tokens"] = someTokens, json.RawMessage("1024")
	case q.MostOlder != nil: // which of two the model goes by is its own affair
		*most = max(*most, *q.MostOlder)
	}
	if *most <= 0 || *most > 1<<20 || q.N < 0 || q.N > 128 {
		return nil, errors.New("max_tokens or n is out of range")
	}
	if q.Stream {
		all["stream_options"] = json.RawMessage(`{"include_usage":true}`)
	}
	r.Header.Set("X-Model", q.Model)
	r.Header.Del("Accept-Encoding") // the usage is to be read
	c := &call{price: p, prompt: int64(len(body)+bytesAToken-1) / bytesAToken}
	c.most = usage{c.prompt, *most * max(q.N, 1)}
	return c, replaceBody(r, all)
}
