package enforce

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

var (
	// noon is a whole second; the verdict ends 90.5 s later.
	noon   = event.FromTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	denial = Decision{At: noon, Until: noon + 90*event.Second + event.Second/2,
		by: &reason{rule: "search/burst", action: verdict.ActBlock, limit: 100 * event.One}}
)

func TestAnswersCanBeChosen(t *testing.T) {
	rules := map[string]PublicRule{"search": {Name: "searches", Messages: map[string]string{
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
			"Retry-After": "91", "RateLimit": `"search/burst";r=0;t=91`, "RateLimit-Policy": `"search/burst";q=100`,
			"X-RateLimit-Limit": "", "Content-Language": "", "Content-Type": "application/problem+json",
		}, `The limit of "search/burst" was exceeded; try again in 91 s.`},
		{"the older fields only", Answers{NoRateLimit: true, XRateLimit: true}, "", map[string]string{
			"RateLimit": "", "RateLimit-Policy": "", "X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1795262491",
		}, ""},
		{"a public name", Answers{Rules: rules}, "fr", map[string]string{"RateLimit": `"searches";r=0;t=91`}, "Slow down: searches, 91 s."},
		{"German", Answers{Rules: rules}, "fr;q=0.9, de-AT, en;q=0.1", map[string]string{"Content-Language": "de"}, "Zu viele Suchen, warte 91 s."},
		{"the better of two", Answers{Rules: rules}, "de;q=0.4, PT-br;q=0.5", map[string]string{"Content-Language": "pt-BR"}, "Devagar: 91 s."},
		{"not wanted", Answers{Rules: rules}, "de;q=0", nil, "Slow down: searches, 91 s."},
		{"messages of all", Answers{Messages: map[string]string{"": "No."}}, "", nil, "No."},
		{"a partition key", Answers{PartitionKey: secret}, "", map[string]string{
			"RateLimit": `"search/burst";r=0;t=91;pk=:sdKGtRbfqOAt:`, "RateLimit-Policy": `"search/burst";q=100;pk=:sdKGtRbfqOAt:`,
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
		if strings.Contains(w.Body.String(), "42") && !strings.Contains(w.Body.String(), "2026") {
			t.Errorf("%s: the key is in the body: %s", c.name, w.Body)
		}
	}
}

func TestUnavailableIsNotTheCallersFault(t *testing.T) {
	for status, a := range map[int]*Answers{503: {}, 429: {UnavailableStatus: 429, XRateLimit: true}} {
		w := httptest.NewRecorder()
		d := Decision{At: noon, by: &unavailable}
		a.Write(w, httptest.NewRequest("GET", "/", nil), d, "")
		var p Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != status || p.Status != status || p.Rule != "" || d.RetryAfter() != 0 {
			t.Errorf("status %d, retry after %d, %+v, %v, want %d and no more", w.Code, d.RetryAfter(), p, err, status)
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
		d := Decision{At: noon, Until: noon + left}
		if back := noon + event.Micros(d.RetryAfter())*event.Second; back < d.Until || back-d.Until >= event.Second {
			t.Errorf("%d µs left: back after %d s", left, d.RetryAfter())
		}
	}
}
