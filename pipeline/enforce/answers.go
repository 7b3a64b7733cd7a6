package enforce

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/event"
)

// quotaExceeded is the problem type of draft-ietf-httpapi-ratelimit-headers-11, section 5.1.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// Answers configures responses to denied requests. The zero value is ready to use. No response
// contains a rule's internal name: see Decision.Rule.
type Answers struct {
	// Status is the response's status when a verdict denies; 0 is 429. It must be 4xx: proxies take
	// other statuses for permissions or failures.
	Status int
	// Type and Title are those of the Problem; "" is quota-exceeded of
	// draft-ietf-httpapi-ratelimit-headers-11.
	Type, Title string
	// NoRateLimit omits the fields RateLimit and RateLimit-Policy of
	// draft-ietf-httpapi-ratelimit-headers-11.
	NoRateLimit bool
	// XRateLimit adds the three older fields: X-RateLimit-Limit, X-RateLimit-Remaining, which is 0,
	// and X-RateLimit-Reset, in seconds since the Unix epoch, rounded up.
	XRateLimit bool
	// Rules are the public names and messages of rules, by their internal names. A limit, whose name is rule/limit,
	// falls back to its rule's entry. Other rules show their verdicts' public name.
	Rules map[string]PublicRule
	// Messages are for rules without messages of their own, as in PublicRule.
	Messages map[string]string
	// PartitionKey is a secret. If set, the RateLimit fields have a parameter pk that tells a
	// client which of its keys is over the limit: the first 9 bytes of the HMAC-SHA256 of the key's
	// text. Nobody can compute or invert it without the secret.
	PartitionKey []byte
	// UnavailableStatus is the response's status when the table is stale and fails closed: see
	// Decision.Unavailable. 0 is 503. Use 429 for proxies that take a 5xx for a failure of the
	// service, and may let the request through.
	UnavailableStatus int
}

// ProblemType is the media type of a Problem.
const ProblemType = "application/problem+json"

// Problem is the body of a denied request's answer: RFC 9457.
type Problem struct {
	Type       string   `json:"type"`
	Title      string   `json:"title"`
	Status     int      `json:"status"`
	Detail     string   `json:"detail"`
	Rule       string   `json:"rule,omitempty"` // the public name; "" is none
	Action     string   `json:"action,omitempty"`
	Until      string   `json:"until,omitempty"`       // RFC 3339; absent if it has no end
	RetryAfter int64    `json:"retry_after,omitempty"` // seconds; 0 is unknown
	Policies   []string `json:"violated-policies,omitempty"`
}

// DenialContext is the part of a denied request on which Denial depends.
type DenialContext struct {
	Languages string // the request's Accept-Language
	Key       string // the text of the key over the limit, for PartitionKey; "" is unknown
}

// Denial returns the response to a denied check: status, header fields and body. It is for callers
// that respond by other means than an http.ResponseWriter.
func (a *Answers) Denial(d Decision, to DenialContext) (status int, header http.Header, body Problem) {
	header = http.Header{}
	header.Set("Cache-Control", "no-store")
	if d.Unavailable() {
		status = cmp.Or(a.UnavailableStatus, http.StatusServiceUnavailable)
		return status, header, Problem{Type: "about:blank", Title: http.StatusText(status), Status: status,
			Detail: "It is not known at the moment whether this is allowed."}
	}
	seconds := d.seconds()
	until := ""
	if !d.Forever() {
		until = d.until.String()
		header.Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	public := a.public(d)
	policy := cmp.Or(public.Name, unnamed)
	a.rateLimit(header, policy, d, to)
	detail, language := public.message(a.Messages, to.Languages, seconds)
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
		Until:      until,
		RetryAfter: seconds,
		Policies:   []string{policy},
	}
}

func (a *Answers) rateLimit(h http.Header, name string, d Decision, to DenialContext) {
	seconds := d.seconds()
	limit := min(int64(d.Limit()/event.One), maxSFInteger)
	if !a.NoRateLimit {
		pk, wait := a.partition(to.Key), ""
		if !d.Forever() {
			wait = ";t=" + strconv.FormatInt(min(seconds, maxSFInteger), 10)
		}
		h.Set("RateLimit", sfString(name)+";r=0"+wait+pk)
		if limit > 0 { // a block by command has none, and q is required
			h.Set("RateLimit-Policy", fmt.Sprintf("%s;q=%d%s", sfString(name), limit, pk))
		}
	}
	if a.XRateLimit {
		h.Set("X-RateLimit-Limit", strconv.FormatInt(limit, 10))
		h.Set("X-RateLimit-Remaining", "0")
		if !d.Forever() {
			h.Set("X-RateLimit-Reset", strconv.FormatInt(int64((d.until+event.Second-1)/event.Second), 10))
		}
	}
}

// partition returns the parameter pk of a key's text; "" when there is none.
func (a *Answers) partition(key string) string {
	if len(a.PartitionKey) == 0 || key == "" {
		return ""
	}
	mac := hmac.New(sha256.New, a.PartitionKey)
	mac.Write([]byte(key))
	return ";pk=:" + base64.StdEncoding.EncodeToString(mac.Sum(nil)[:9]) + ":"
}

// Write responds to a request that d denies: with Status, or with UnavailableStatus when d is
// Unavailable. Retry-After is in whole seconds, rounded up, so the verdict has ended when a client
// honors it. An unavailable response has none, because the end is unknown; nor has one that is denied Forever.
func (a *Answers) Write(w http.ResponseWriter, r *http.Request, d Decision, key string) {
	_, header, body := a.Denial(d, DenialContext{Languages: r.Header.Get("Accept-Language"), Key: key})
	maps.Copy(w.Header(), header)
	problem(w, r, body)
}

// Unclear is the detail of a Refusal for who sent the request.
const Unclear = "It is not clear who sends this request: a header that says so has several values."

// Refusal returns the fields and the Problem that answer a request which does not say clearly who sent it, or for
// what: 400.
func Refusal(detail string) (header map[string][]string, _ Problem) {
	return map[string][]string{"Cache-Control": {"no-store"}, "Content-Type": {ProblemType}},
		Problem{Type: "about:blank", Title: http.StatusText(http.StatusBadRequest), Status: http.StatusBadRequest, Detail: detail}
}

// WriteRefused responds with the Refusal of a request that does not say clearly who sent it.
func WriteRefused(w http.ResponseWriter, r *http.Request) {
	header, body := Refusal(Unclear)
	maps.Copy(w.Header(), header)
	problem(w, r, body)
}

func problem(w http.ResponseWriter, r *http.Request, body Problem) {
	w.Header().Set("Content-Type", ProblemType)
	w.Header().Del("Content-Length") // of the response that the handler began
	w.WriteHeader(body.Status)
	if r.Method != http.MethodHead {
		_ = json.NewEncoder(w).Encode(body) // fails only when the client has left
	}
}

// WriteDenied is Write of the zero Answers.
func WriteDenied(w http.ResponseWriter, r *http.Request, d Decision) { new(Answers).Write(w, r, d, "") }

// PublicName returns the name of d's rule that callers may see; "" is none. It is for callers that
// don't use Denial.
func (a *Answers) PublicName(d Decision) string { return a.public(d).Name }

// NameOf is PublicName for a rule, or limit, whose verdicts have a public name.
func (a *Answers) NameOf(rule, public string) string { return a.publicOf(rule, public).Name }

// public returns what callers are told of the deciding rule.
func (a *Answers) public(d Decision) PublicRule { return a.publicOf(d.Rule(), d.Public()) }

// publicOf is public for a rule, or limit, whose verdicts have a public name.
func (a *Answers) publicOf(rule, public string) PublicRule {
	p, ok := a.Rules[rule]
	if !ok {
		base, _, _ := strings.Cut(rule, "/")
		p = a.Rules[base]
	}
	p.Name = cmp.Or(p.Name, public)
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

// sfString writes s as a string of a structured field. Characters other than printable ASCII become
// '?'.
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
