package enforce

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/tallygate/tallygate/pipeline/event"
)

// quotaExceeded is the problem type of draft-ietf-httpapi-ratelimit-headers-11, section 5.1.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// Problem is the body of a denied request's answer: application/problem+json, RFC 9457.
type Problem struct {
	Type       string   `json:"type"`
	Title      string   `json:"title"`
	Status     int      `json:"status"`
	Detail     string   `json:"detail"`
	Rule       string   `json:"rule,omitempty"`
	Action     string   `json:"action,omitempty"`
	Until      string   `json:"until,omitempty"` // RFC 3339
	RetryAfter int64    `json:"retry_after"`     // seconds
	Policies   []string `json:"violated-policies,omitempty"`
}

// WriteDenied answers a request that d denies: 429, with Retry-After, the RateLimit and
// RateLimit-Policy fields of draft-ietf-httpapi-ratelimit-headers-11, and a Problem as the body.
// Retry-After is in whole seconds, rounded up: a client that keeps to it finds the verdict over.
func WriteDenied(w http.ResponseWriter, r *http.Request, d Decision) {
	seconds := d.RetryAfter()
	h := w.Header()
	h.Set("Retry-After", strconv.FormatInt(seconds, 10))
	h.Set("RateLimit", fmt.Sprintf("%s;r=0;t=%d", sfString(d.Rule()), min(seconds, maxSFInteger)))
	if d.Limit() > 0 { // a block by command has no limit, and q is required
		h.Set("RateLimit-Policy", fmt.Sprintf("%s;q=%d", sfString(d.Rule()), min(int64(d.Limit()/event.One), maxSFInteger)))
	}
	writeProblem(w, r, Problem{
		Type:       quotaExceeded,
		Title:      "Request cannot be satisfied as assigned quota has been exceeded",
		Status:     http.StatusTooManyRequests,
		Detail:     fmt.Sprintf("The limit of %q was exceeded; try again in %d s.", d.Rule(), seconds),
		Rule:       d.Rule(),
		Action:     d.Action().String(),
		Until:      string(d.Until.AppendTo(nil)),
		RetryAfter: seconds,
		Policies:   []string{d.Rule()},
	})
}

func writeNotReady(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", "1")
	writeProblem(w, r, Problem{
		Type:       "about:blank",
		Title:      http.StatusText(http.StatusServiceUnavailable),
		Status:     http.StatusServiceUnavailable,
		Detail:     "The blocklist has not been read yet.",
		RetryAfter: 1,
	})
}

func writeProblem(w http.ResponseWriter, r *http.Request, p Problem) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Del("Content-Length") // of the answer that would have been
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		_ = json.NewEncoder(w).Encode(p) // the client left: there is nobody to tell
	}
}

// maxSFInteger is the greatest integer of a structured field, RFC 9651, section 3.3.1.
const maxSFInteger = 999_999_999_999_999

// sfString writes s as a string of a structured field. Those hold printable ASCII only; anything else becomes '?'.
func sfString(s string) string {
	out := []byte{'"'}
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			out = append(out, '\\', byte(c))
		case c < ' ' || c > '~':
			out = append(out, '?')
		default:
			out = append(out, byte(c))
		}
	}
	return string(append(out, '"'))
}
