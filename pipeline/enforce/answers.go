package enforce

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/pipeline/event"
)

// quotaExceeded is the problem type of draft-ietf-httpapi-ratelimit-headers-11, section 5.1.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// unnamed stands for a rule that has no public name where a field must name something.
const unnamed = "limit"

// Answers says how those are answered who are denied. The zero value is good. None of it has a rule's own name: see Decision.Rule.
type Answers struct {
	// Status answers those whom a verdict denies; 0 is 429. Only 4xx: proxies take others for permissions, or for failures.
	Status int
	// Type and Title are those of the Problem; "" is the quota-exceeded of draft-ietf-httpapi-ratelimit-headers-11.
	Type, Title string
	// NoRateLimit leaves out the fields RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-11).
	NoRateLimit bool
	// XRateLimit adds the three fields that came before: X-RateLimit-Limit, X-RateLimit-Remaining, which is 0, and
	// X-RateLimit-Reset, in seconds since the Unix epoch, rounded up.
	XRateLimit bool
	// Rules are the public sides of rules, by their names; what is named rule/limit has that of its rule if it has none of its own.
	// A rule that is not in it shows the public name that its verdicts have, or none.
	Rules map[string]PublicRule
	// Messages are what is said of rules without messages of their own, as in PublicRule.
	Messages map[string]string
	// PartitionKey is a secret. If set, the RateLimit fields have a parameter pk that tells a client which of its keys is
	// over the limit: the first 9 bytes of the HMAC-SHA256 of the key's text, which nobody without the secret can compute or invert.
	PartitionKey []byte
	// UnavailableStatus answers those who are denied only because nobody knows: see Decision.Unavailable. 0 is 503; 429 is for proxies
	// that take a 5xx for a failure of ours, behind which they may let the request through.
	UnavailableStatus int
}

// PublicRule is what callers are told of a rule.
type PublicRule struct {
	// Name is what the rule is called; "" is the public name that its verdicts have, or none.
	Name string
	// Messages are by language tag, such as de or pt-BR; "" is the language of those who ask for none of the others.
	// {rule}, which is "limit" for a rule without a public name, and {seconds} are replaced. The request's Accept-Language chooses.
	Messages map[string]string
}

// Problem is the body of a denied request's answer: application/problem+json, RFC 9457.
type Problem struct {
	Type       string   `json:"type"`
	Title      string   `json:"title"`
	Status     int      `json:"status"`
	Detail     string   `json:"detail"`
	Rule       string   `json:"rule,omitempty"` // the public name; "" is none
	Action     string   `json:"action,omitempty"`
	Until      string   `json:"until,omitempty"`       // RFC 3339
	RetryAfter int64    `json:"retry_after,omitempty"` // seconds; 0 is unknown
	Policies   []string `json:"violated-policies,omitempty"`
}

// Asked is who is denied, as far as the answer goes.
type Asked struct {
	Languages string // the request's Accept-Language
	Key       string // the text of the key that is over the limit, for PartitionKey; "" is unknown
}

// Denial is the answer to a check that d denies: a status, header fields, and what the body says. It is for those who answer
// by other means than an http.ResponseWriter.
func (a *Answers) Denial(d Decision, asked Asked) (status int, header http.Header, body Problem) {
	header = http.Header{}
	header.Set("Cache-Control", "no-store")
	if d.Unavailable() {
		status = cmp.Or(a.UnavailableStatus, http.StatusServiceUnavailable)
		return status, header, Problem{Type: "about:blank", Title: http.StatusText(status), Status: status,
			Detail: "It is not known at the moment whether this is allowed."}
	}
	seconds := d.RetryAfter()
	header.Set("Retry-After", strconv.FormatInt(seconds, 10))
	public := a.public(d)
	policy := cmp.Or(public.Name, unnamed)
	a.rateLimit(header, policy, d, asked)
	detail, language := public.message(a.Messages, asked.Languages, seconds)
	if language != "" {
		header.Set("Content-Language", language)
	}
	status = cmp.Or(a.Status, http.StatusTooManyRequests)
	return status, header, Problem{
		Type:       cmp.Or(a.Type, quotaExceeded),
		Title:      cmp.Or(a.Title, "Request cannot be satisfied as assigned quota has been exceeded"),
		Status:     status,
		Detail:     detail,
		Rule:       public.Name,
		Action:     d.Action().String(),
		Until:      string(d.Until.AppendTo(nil)),
		RetryAfter: seconds,
		Policies:   []string{policy},
	}
}

func (a *Answers) rateLimit(h http.Header, name string, d Decision, asked Asked) {
	seconds := d.RetryAfter()
	limit := min(int64(d.Limit()/event.One), maxSFInteger)
	if !a.NoRateLimit {
		pk := ""
		if len(a.PartitionKey) > 0 && asked.Key != "" {
			mac := hmac.New(sha256.New, a.PartitionKey)
			mac.Write([]byte(asked.Key))
			pk = ";pk=:" + base64.StdEncoding.EncodeToString(mac.Sum(nil)[:9]) + ":"
		}
		h.Set("RateLimit", fmt.Sprintf("%s;r=0;t=%d%s", sfString(name), min(seconds, maxSFInteger), pk))
		if limit > 0 { // a block by command has none, and q is required
			h.Set("RateLimit-Policy", fmt.Sprintf("%s;q=%d%s", sfString(name), limit, pk))
		}
	}
	if a.XRateLimit {
		h.Set("X-RateLimit-Limit", strconv.FormatInt(limit, 10))
		h.Set("X-RateLimit-Remaining", "0")
		h.Set("X-RateLimit-Reset", strconv.FormatInt(int64((d.Until+event.Second-1)/event.Second), 10))
	}
}

// Write answers a request that d denies: with Status, or 503 when d is Unavailable. Retry-After is in whole seconds, rounded
// up: a client that keeps to it finds the verdict over. With 503 there is none, since nobody knows.
func (a *Answers) Write(w http.ResponseWriter, r *http.Request, d Decision, key string) {
	_, header, body := a.Denial(d, Asked{Languages: r.Header.Get("Accept-Language"), Key: key})
	h := w.Header()
	for name, values := range header {
		h[name] = values
	}
	problem(w, r, body)
}

// WriteRefused answers a request of which it is not clear who sent it or what it asks for: 400, with a Problem.
func WriteRefused(w http.ResponseWriter, r *http.Request) {
	RefusedBecause(w, r, "It is not clear who sends this request: a header that says so has several values.")
}

// RefusedBecause is WriteRefused with another detail.
func RefusedBecause(w http.ResponseWriter, r *http.Request, detail string) {
	w.Header().Set("Cache-Control", "no-store")
	problem(w, r, Problem{Type: "about:blank", Title: http.StatusText(http.StatusBadRequest), Status: http.StatusBadRequest, Detail: detail})
}

func problem(w http.ResponseWriter, r *http.Request, body Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Del("Content-Length") // of the answer that would have been
	w.WriteHeader(body.Status)
	if r.Method != http.MethodHead {
		_ = json.NewEncoder(w).Encode(body) // the client left: there is nobody to tell
	}
}

// WriteDenied is Write of the zero Answers.
func WriteDenied(w http.ResponseWriter, r *http.Request, d Decision) { new(Answers).Write(w, r, d, "") }

// PublicName returns what those whom d denies are told the rule is called; "" is nothing. It is for those who answer by other means
// than Denial.
func (a *Answers) PublicName(d Decision) string { return a.public(d).Name }

// public returns what is told of the rule that decides.
func (a *Answers) public(d Decision) PublicRule {
	p, ok := a.Rules[d.Rule()]
	if !ok {
		base, _, _ := strings.Cut(d.Rule(), "/")
		p = a.Rules[base]
	}
	p.Name = cmp.Or(p.Name, d.Public())
	return p
}

// Validate returns what is wrong with the answers.
func (a *Answers) Validate() error {
	var errs []error
	if a.Status != 0 && (a.Status < 400 || a.Status > 499) {
		errs = append(errs, fmt.Errorf("enforce: Answers.Status is %d, want one from 400 to 499", a.Status))
	}
	if a.UnavailableStatus != 0 && (a.UnavailableStatus < 400 || a.UnavailableStatus > 599) {
		errs = append(errs, fmt.Errorf("enforce: Answers.UnavailableStatus is %d, want one from 400 to 599", a.UnavailableStatus))
	}
	return errors.Join(errs...)
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
