package session

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	oldKey = "0123456789abcdef0123456789abcdef-old"
	newKey = "0123456789abcdef0123456789abcdef-new"
)

func keyFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// look has the file looked at again.
func (s *sealer) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked = time.Time{}
}

// Consoles with the same file open each other's cookies. A new key is put first, then the old one is
// taken away, and nobody has to log in again meanwhile; without a restart.
func TestKeysRotate(t *testing.T) {
	path := keyFile(t, oldKey+"\n")
	var log bytes.Buffer
	one, err := newSealer(path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	another, err := newSealer(keyFile(t, "\n "+newKey+" \n"+oldKey), logger(t))
	if err != nil {
		t.Fatal(err)
	}
	first := one.close("p", []byte("x"))
	opens := func(s *sealer, sealed string, want bool) {
		t.Helper()
		if text, err := s.open("p", sealed); (err == nil) != want || want && string(text) != "x" {
			t.Errorf("%q %v, want %v", text, err, want)
		}
	}
	opens(another, first, true)
	opens(one, another.close("p", []byte("x")), false)
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		one.look()
	}
	put(newKey + "\n" + oldKey + "\n")
	opens(one, first, true)
	opens(one, another.close("p", []byte("x")), true)
	second := one.close("p", []byte("x"))
	put("too short")
	opens(one, second, true)
	put(newKey)
	opens(one, second, true)
	opens(one, first, false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for range 2 { // whoever deletes a key to end its sessions learns, once, that it is still used
		one.look()
		opens(one, second, true)
	}
	if said := log.String(); strings.Contains(said, newKey) || strings.Count(said, "level=ERROR") != 2 || !strings.Contains(said, "no such file") {
		t.Errorf("the log: %s", said)
	}
	put(newKey)
	opens(one, second, true)
	if said := log.String(); !strings.HasSuffix(said, "keys=1\n") || strings.Count(said, "was reloaded") != 3 {
		t.Errorf("the log does not say that the file is back: %s", said)
	}
}

func TestWhatIsSealedIsNeitherReadNorChanged(t *testing.T) {
	s, err := newSealer("", logger(t))
	if err != nil {
		t.Fatal(err)
	}
	sealed := s.close("session", []byte("s3cret"))
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || bytes.Contains(raw, []byte("s3cret")) {
		t.Errorf("%q %v", raw, err)
	}
	if s.close("session", []byte("s3cret")) == sealed {
		t.Error("twice the same")
	}
	for i := range raw {
		changed := bytes.Clone(raw)
		changed[i] ^= 1
		if _, err := s.open("session", base64.RawURLEncoding.EncodeToString(changed)); err == nil {
			t.Fatalf("byte %d was changed", i)
		}
	}
	for _, text := range []string{"", "x", "!", sealed[:20], sealed + "AA"} {
		if _, err := s.open("session", text); err == nil {
			t.Errorf("%q is opened", text)
		}
	}
	if _, err := s.open("login", sealed); err == nil {
		t.Error("for another purpose")
	}
}

func TestMistakesInTheKeyFile(t *testing.T) {
	for text, want := range map[string]string{"": "no key", "\n\n": "no key", "s3cr3t": "line 1", oldKey + "\ns3cr3t\n": "line 2", strings.Repeat("x", 1<<17): "too long"} {
		_, err := New(Config{Addr: loopback, KeyFile: keyFile(t, text), Logger: logger(t)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t") || !strings.Contains(err.Error(), "--session-key-file") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	if _, err := New(Config{Addr: loopback, KeyFile: filepath.Join(t.TempDir(), "nosuch")}); err == nil {
		t.Error("a file that is not there")
	}
	for _, url := range []string{"console.example.com", "ftp://x", "https://x/path", "https://x?y", "https://a:b@x", "https://"} {
		if _, err := New(Config{Addr: loopback, External: url}); err == nil || !strings.Contains(err.Error(), "--external-url") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// with is a request with the cookies of a ticket, and the cookies, set over those from before.
func (c *console) with(t ticket, before ...*http.Cookie) (*http.Request, []*http.Cookie, error) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, k := range before {
		r.AddCookie(k)
	}
	w := httptest.NewRecorder()
	err := c.jar.setTicket(w, r, t)
	after := httptest.NewRequest(http.MethodGet, "/", nil)
	set := w.Result().Cookies()
	for _, k := range set {
		if k.MaxAge >= 0 {
			after.AddCookie(k)
		}
	}
	return after, set, err
}

// An issuer's token may be longer than a cookie. Then there are several, and none is left over when the
// next token is shorter.
func TestLongTokensAreInSeveralCookies(t *testing.T) {
	c := aConsole(t, anAggregator(t, false, nil))
	now := time.Now()
	long := ticket{Token: strings.Repeat("t", 9000), Begun: now, Seen: now}
	r, set, err := c.with(long)
	if err != nil || len(set) != 4 {
		t.Fatalf("%d cookies, %v", len(set), err)
	}
	for _, k := range set {
		if len(k.Raw) > 4096 {
			t.Errorf("a cookie of %d bytes", len(k.Raw))
		}
	}
	if got, err := c.jar.ticket(r); err != nil || got.Token != long.Token {
		t.Errorf("%v", err)
	}
	r, after, err := c.with(ticket{Token: "short", Begun: now, Seen: now}, set...)
	if got, gotErr := c.jar.ticket(r); err != nil || gotErr != nil || got.Token != "short" || len(after) != 4 {
		t.Errorf("%d cookies, %v %v", len(after), err, gotErr)
	}
	if _, _, err := c.with(ticket{Token: strings.Repeat("t", 15000), Begun: now, Seen: now}); err == nil || !strings.Contains(err.Error(), "too long for cookies") {
		t.Errorf("a token of 15,000 bytes: %v", err)
	}
}

// A session ends 12 hours after its last use, 24 hours after the login, and with a token that cannot be
// renewed.
func TestWhenASessionEnds(t *testing.T) {
	c := aConsole(t, anAggregator(t, false, nil))
	now := time.Now()
	for about, k := range map[string]struct {
		ticket
		good bool
	}{
		"new":                      {ticket{Begun: now, Seen: now}, true},
		"unused for 11 hours":      {ticket{Begun: now.Add(-11 * time.Hour), Seen: now.Add(-11 * time.Hour)}, true},
		"unused for 12 hours":      {ticket{Begun: now.Add(-12 * time.Hour), Seen: now.Add(-12 * time.Hour)}, false},
		"used for 23 hours":        {ticket{Begun: now.Add(-23 * time.Hour), Seen: now}, true},
		"used for 24 hours":        {ticket{Begun: now.Add(-24 * time.Hour), Seen: now}, false},
		"its token has expired":    {ticket{Begun: now, Seen: now, Until: now}, false},
		"its token can be renewed": {ticket{Begun: now, Seen: now, Until: now, Refresh: "x"}, true},
		"empty":                    {ticket{}, false},
	} {
		r, _, err := c.with(k.ticket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.jar.ticket(r); (err == nil) != k.good {
			t.Errorf("%s: %v", about, err)
		}
	}
	text, _ := json.Marshal("not a ticket")
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: sessionCookie, Value: c.jar.seal.close(sessionCookie, text)})
	if _, err := c.jar.ticket(r); !errors.Is(err, errNoSession) {
		t.Errorf("another version's: %v", err)
	}
}
