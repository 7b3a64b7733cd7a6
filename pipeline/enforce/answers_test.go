package enforce

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

var (
	// noon is a whole second; the verdict ends 90.5 s later.
	noon   = event.FromTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	denial = Decision{at: noon, until: noon + 90*event.Second + event.Second/2,
		by: &verdict.Verdict{Rule: "search-scraper-detector/burst", Public: "searching", Action: verdict.ActBlock, Limit: 100 * event.One}}
)

func TestAnswersCanBeChosen(t *testing.T) {
	rules := map[string]PublicRule{"search-scraper-detector": {Name: "searches", Messages: map[string]string{
		"": "Slow down: {rule}, {seconds} s.", "de": "Zu viele Suchen, warte {seconds} s.", "pt-BR": "Devagar: {seconds} s.",
	}}}
	secret := []byte("secret")
	for _, c := range []struct {
		name      string
		answers   Answers
		languages string
		want      map[string]string
		detail    string
	}{
		{"the zero value", Answers{}, "", map[string]string{
			"Retry-After": "91", "RateLimit": `"searching";r=0;t=91`, "RateLimit-Policy": `"searching";q=100`,
			"X-RateLimit-Limit": "", "Content-Language": "", "Content-Type": "application/problem+json",
		}, `The limit of "searching" was exceeded; try again in 91 s.`},
		{"the older fields only", Answers{NoRateLimit: true, XRateLimit: true}, "", map[string]string{
			"RateLimit": "", "RateLimit-Policy": "", "X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1795262491",
		}, ""},
		{"a public name of the service's own", Answers{Rules: rules}, "fr", map[string]string{"RateLimit": `"searches";r=0;t=91`}, "Slow down: searches, 91 s."},
		{"German", Answers{Rules: rules}, "fr;q=0.9, de-AT, en;q=0.1", map[string]string{"Content-Language": "de"}, "Zu viele Suchen, warte 91 s."},
		{"the better of two", Answers{Rules: rules}, "de;q=0.4, PT-br;q=0.5", map[string]string{"Content-Language": "pt-BR"}, "Devagar: 91 s."},
		{"not wanted", Answers{Rules: rules}, "de;q=0", nil, "Slow down: searches, 91 s."},
		{"messages without a name", Answers{Rules: map[string]PublicRule{"search-scraper-detector": {Messages: map[string]string{"": "{rule}: no."}}}}, "", nil, "searching: no."},
		{"messages of all", Answers{Messages: map[string]string{"": "No."}}, "", nil, "No."},
		{"a partition key", Answers{PartitionKey: secret}, "", map[string]string{
			"RateLimit": `"searching";r=0;t=91;pk=:sdKGtRbfqOAt:`, "RateLimit-Policy": `"searching";q=100;pk=:sdKGtRbfqOAt:`,
		}, ""},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept-Language", c.languages)
		c.answers.Write(w, r, denial, "uid=42")
		for name, want := range c.want {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", c.name, name, got, want)
			}
		}
		var p Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 429 || p.Status != 429 {
			t.Fatalf("%s: %d, %+v, %v", c.name, w.Code, p, err)
		}
		if c.detail != "" && p.Detail != c.detail {
			t.Errorf("%s: %q, want %q", c.name, p.Detail, c.detail)
		}
		if told := fmt.Sprint(w.Header(), w.Body); strings.Contains(told, "detector") {
			t.Errorf("%s: the rule's own name is told: %s", c.name, told)
		}
		if strings.Contains(w.Body.String(), "42") && !strings.Contains(w.Body.String(), "2026") {
			t.Errorf("%s: the key is in the body: %s", c.name, w.Body)
		}
	}
}

// A rule's own name says what it looks for: those who are denied were told it in headers and bodies.
func TestDeniedCallersAreToldPublicNamesOnly(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers Answers
		public  string
		header  string
		detail  string
	}{
		{"none", Answers{}, "", "limit", "A limit was exceeded; try again in 91 s."},
		{"a message that names the rule", Answers{Messages: map[string]string{"": "The {rule}: {seconds} s."}}, "", "limit", "The limit: 91 s."},
		{"the rule's", Answers{}, "payments", "payments", `The limit of "payments" was exceeded; try again in 91 s.`},
		{"another rule's", Answers{Rules: map[string]PublicRule{"card": {Name: "cards"}}}, "", "limit", ""},
		{"that of a block by command", Answers{Rules: map[string]PublicRule{"manual": {Name: "blocked"}}}, "", "limit", ""},
	} {
		d := denial
		d.by = &verdict.Verdict{Rule: "card-testing-detector-v2", Public: c.public, Action: verdict.ActBlock, Limit: 100 * event.One}
		w := httptest.NewRecorder()
		c.answers.Write(w, httptest.NewRequest("GET", "/", nil), d, "uid=42")
		var p Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Rule != c.public || c.answers.PublicName(d) != c.public {
			t.Errorf("%s: the rule is %q, %v, want %q", c.name, p.Rule, err, c.public)
		}
		if got, want := w.Header().Get("RateLimit"), `"`+c.header+`";r=0;t=91`; got != want || !slices.Equal(p.Policies, []string{c.header}) {
			t.Errorf("%s: RateLimit is %s, and the policies %q, want %s", c.name, got, p.Policies, want)
		}
		if c.detail != "" && p.Detail != c.detail {
			t.Errorf("%s: %q, want %q", c.name, p.Detail, c.detail)
		}
		if told := fmt.Sprint(w.Header(), w.Body); strings.Contains(told, "card") {
			t.Errorf("%s: the rule's own name is told: %s", c.name, told)
		}
	}
}

func TestStatusTypeAndTitleCanBeChosen(t *testing.T) {
	a := Answers{Status: 403, Type: "https://shop.example/slow-down", Title: "Slow down"}
	w := httptest.NewRecorder()
	a.Write(w, httptest.NewRequest("GET", "/", nil), denial, "")
	var p Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 403 || p.Status != 403 || p.Type != a.Type || p.Title != a.Title {
		t.Errorf("%d %+v, %v", w.Code, p, err)
	}
	for status, good := range map[int]bool{0: true, 400: true, 429: true, 499: true, 200: false, 399: false, 500: false, -1: false} {
		a := Answers{Status: status}
		if (a.Validate() == nil) != good {
			t.Errorf("status %d: %v", status, a.Validate())
		}
	}
	if a := (Answers{UnavailableStatus: 200}); a.Validate() == nil {
		t.Error("who nobody knows of is answered 200")
	}
}

func TestUnavailableIsNotTheCallersFault(t *testing.T) {
	for status, a := range map[int]*Answers{503: {}, 429: {UnavailableStatus: 429, XRateLimit: true}} {
		w := httptest.NewRecorder()
		d := Decision{at: noon, by: &unavailable}
		a.Write(w, httptest.NewRequest("GET", "/", nil), d, "")
		var p Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != status || p.Status != status || p.Rule != "" || d.RetryAfter() != 0 {
			t.Errorf("status %d, retry after %v, %+v, %v, want %d and no more", w.Code, d.RetryAfter(), p, err, status)
		}
		for _, name := range []string{"Retry-After", "RateLimit", "RateLimit-Policy", "X-RateLimit-Reset"} {
			if w.Header().Get(name) != "" {
				t.Errorf("%s: %q, which nobody can know", name, w.Header().Get(name))
			}
		}
		if strings.Contains(w.Body.String(), "retry_after") {
			t.Errorf("the body tells when: %s", w.Body)
		}
	}
}

// A Retry-After must never bring a client back before the verdict ends.
func TestRetryAfterIsNeverEarly(t *testing.T) {
	for left := event.Micros(1); left < 5*event.Second; left += 99_991 {
		d := Decision{at: noon, until: noon + left}
		if back := noon + event.FromDuration(d.RetryAfter()); back < d.until || back-d.until >= event.Second {
			t.Errorf("%d µs left: back after %v", left, d.RetryAfter())
		}
	}
}

func TestDeniedIsWellFormedWhateverTheRuleIsCalled(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Length", "5")
	d := Decision{until: t0, at: t0, by: &verdict.Verdict{Rule: "r", Public: "a\"b\\c\né", Action: verdict.ActThrottle}}
	WriteDenied(w, httptest.NewRequest("HEAD", "/", nil), d)
	if got, want := w.Header().Get("RateLimit"), `"a\"b\\c??";r=0;t=1`; got != want {
		t.Errorf("RateLimit: %s, want %s", got, want)
	}
	if w.Header().Get("RateLimit-Policy") != "" || w.Header().Get("Content-Length") != "" || w.Body.Len() != 0 {
		t.Errorf("headers %v, %d bytes, want no policy for a block without a limit, and no body for HEAD", w.Header(), w.Body.Len())
	}
}

// What has no end has no Retry-After, no time in RateLimit, and no message that tells to wait.
func TestForeverTellsNoTime(t *testing.T) {
	forever := Decision{at: noon, until: event.Forever, by: denial.by}
	never := RefuseAt(noon, denial.by, math.MaxInt64)
	for _, d := range []Decision{forever, never} {
		w := httptest.NewRecorder()
		answers := Answers{XRateLimit: true, Messages: map[string]string{"": "Wait {seconds} s."}}
		answers.Write(w, httptest.NewRequest("GET", "/", nil), d, "uid=42")
		h := w.Header()
		if h.Get("Retry-After") != "" || h.Get("X-RateLimit-Reset") != "" || h.Get("RateLimit") != `"searching";r=0` || w.Code != 429 {
			t.Errorf("%d, fields %v", w.Code, h)
		}
		if body := w.Body.String(); !strings.Contains(body, `The limit of \"searching\" was exceeded."`) || strings.Contains(body, "until") || strings.Contains(body, "retry_after") {
			t.Errorf("the body is %s", body)
		}
		if !d.Forever() || d.RetryAfter() != 0 {
			t.Errorf("%v, after %v", d.Forever(), d.RetryAfter())
		}
	}
	if d := (Decision{Allowed: true, at: noon}); d.Forever() || denial.Forever() {
		t.Error("what ends is forever")
	}
	table := newTable(t)
	table.Apply(0, []verdict.Verdict{block("r", "uid=42", func(v *verdict.Verdict) { v.Since, v.Until = 0, event.Forever })})
	if d := table.Check("x", "42"); d.Allowed || !d.Forever() {
		t.Errorf("of a table: %+v", d)
	}
}
