package session

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What the console shows as its own word, with a button to undo it, was a cookie that whoever can set one may write.
func TestWhatIsKeptIsSealed(t *testing.T) {
	a := anAggregator(t, false, nil)
	c := aConsole(t, a, func(cfg *Config) { cfg.External = "https://console.example.com" })
	request := func(by string, cookies ...*http.Cookie) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for _, one := range cookies {
			r.AddCookie(one)
		}
		return r.WithContext(With(r.Context(), Session{Name: by}))
	}
	keep := func(text string) []*http.Cookie {
		w := httptest.NewRecorder()
		c.Keep(w, request("ann"), []byte(text))
		return w.Result().Cookies()
	}
	text := `{"Text":"unblocked"}`
	cookies := keep(text)
	if len(cookies) != 1 || cookies[0].Name != "__Host-tallygate-said" || !cookies[0].Secure || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode {
		t.Fatal(cookies)
	}
	take := func(by string, with ...*http.Cookie) string {
		w := httptest.NewRecorder()
		got := c.Take(w, request(by, with...))
		if set := w.Result().Cookies(); len(with) > 0 && strings.HasPrefix(with[0].Name, "__Host-") && (len(set) != 1 || set[0].MaxAge >= 0) {
			t.Errorf("the browser keeps it: %v", set)
		}
		return string(got)
	}
	if got := take("ann", cookies...); got != text {
		t.Errorf("kept %q", got)
	}
	own := httptest.NewRecorder()
	if err := c.jar.set(own, request("ann"), sessionCookie, []byte(text), time.Now().Add(time.Hour), http.SameSiteStrictMode); err != nil {
		t.Fatal(err)
	}
	plain := base64.RawURLEncoding.EncodeToString([]byte(text))
	for why, forged := range map[string]*http.Cookie{
		"unsealed":              {Name: cookies[0].Name, Value: plain},
		"unsealed as before":    {Name: "tallygate-said", Value: plain},
		"without the prefix":    {Name: "tallygate-said", Value: cookies[0].Value},
		"sealed for a session":  {Name: cookies[0].Name, Value: own.Result().Cookies()[0].Value},
		"changed at its end":    {Name: cookies[0].Name, Value: cookies[0].Value[:len(cookies[0].Value)-4] + "AAAA"},
		"of no value":           {Name: cookies[0].Name},
		"something else sealed": {Name: cookies[0].Name, Value: c.jar.seal.close(saidCookie, []byte("[]"))},
	} {
		if got := take("ann", forged); got != "" {
			t.Errorf("%s: %q", why, got)
		}
	}
	if got := take("bob", cookies...); got != "" {
		t.Errorf("another reader is told %q", got)
	}
	if long := keep(strings.Repeat("x", maxKept+1)); len(long) != 0 {
		t.Errorf("%d bytes are kept", len(long[0].Value))
	}
	if most := keep(strings.Repeat("x", maxKept)); len(most) != 1 || take("ann", most...) == "" {
		t.Error("the longest is not kept in one cookie")
	}
	synctest.Test(t, func(t *testing.T) {
		old := keep(text)
		time.Sleep(keptFor)
		if got := take("ann", old...); got != "" {
			t.Errorf("told after a minute: %q", got)
		}
	})
}
