package ask

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// keysOfMembers are the public keys of a group's members.
type keysOfMembers struct {
	Group
	all []string
}

func (k *keysOfMembers) Knows(_ context.Context, key string, _ bool) bool {
	return slices.Contains(k.all, key)
}

// claimOf returns what a header claims.
func claimOf(t *testing.T, header string) (c peerClaim) {
	t.Helper()
	first, _, _ := strings.Cut(header, ".")
	text, err := base64.RawURLEncoding.DecodeString(first)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A forwarded request counts once, at one instance, as it was sent, and only if a member of the group sent it.
func TestForgedRequestsAreRefused(t *testing.T) {
	members, actors := &keysOfMembers{}, make(chan Actor, 1)
	to := &Answers{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, ok, err := to.Peer(r)
		if err != nil || !ok {
			http.Error(w, "", http.StatusUnauthorized)
			return
		}
		actors <- actor
	}))
	defer server.Close()
	member := func() *Answers {
		a, err := New(Config{Group: members, Advertise: server.Listener.Addr().String()})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	to = member()
	other, stranger := member(), member()
	members.all = []string{to.PeerKey(), other.PeerKey()}

	body := []byte(`{"command":"block","for":"1h","key":{"uid":"1"},"reason":"a test"}`)
	signed := func(by *Answers) *http.Request {
		req, err := by.peers.request(WithActor(t.Context(), Actor{Name: "x", Role: "operator"}), http.MethodPost, Address{Addr: to.advertise}, "/v1/commands?", body)
		if err != nil {
			t.Fatal(err)
		}
		return req
	}
	send := func(req *http.Request, body []byte) int {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	first := signed(other)
	if got := send(first, body); got != http.StatusOK {
		t.Fatalf("what a member has signed is answered with %d", got)
	}
	if actor := <-actors; actor.Name != "x" || actor.Role != "operator" {
		t.Errorf("the caller is %+v", actor)
	}
	for about, forge := range map[string]func(req *http.Request, text string) []byte{
		"sent again":   func(req *http.Request, _ string) []byte { req.Header = first.Header; return body },
		"no signature": func(req *http.Request, _ string) []byte { req.Header.Set(peerHeader, "x"); return body },
		"a cut signature": func(req *http.Request, text string) []byte {
			req.Header.Set(peerHeader, text[:len(text)-4])
			return body
		},
		"two signatures":     func(req *http.Request, _ string) []byte { req.Header.Add(peerHeader, "x"); return body },
		"another body":       func(*http.Request, string) []byte { return bytes.Replace(body, []byte("1h"), []byte("9h"), 1) },
		"another path":       func(req *http.Request, _ string) []byte { req.URL.Path = "/v1/commands/x"; return body },
		"another method":     func(req *http.Request, _ string) []byte { req.Method = http.MethodPut; return body },
		"a key of no member": func(req *http.Request, _ string) []byte { req.Header = signed(stranger).Header; return body },
		"of another's address": func(req *http.Request, text string) []byte {
			req.Header.Set(peerHeader, other.signAgain(t, text, func(c *peerClaim) { c.To = "192.0.2.1:80" }))
			return body
		},
		"signed by another key": func(req *http.Request, text string) []byte {
			req.Header.Set(peerHeader, stranger.signAgain(t, text, func(*peerClaim) {}))
			return body
		},
		"long ago": func(req *http.Request, text string) []byte {
			req.Header.Set(peerHeader, other.signAgain(t, text, func(c *peerClaim) { c.At -= 2 * peerClock.Milliseconds() }))
			return body
		},
	} {
		req := signed(other)
		if got := send(req, forge(req, req.Header.Get(peerHeader))); got != http.StatusUnauthorized {
			t.Errorf("%s: %d", about, got)
		}
	}
	if err := to.checkClaim(peerClaim{To: to.advertise, Method: http.MethodPost, URI: digest([]byte("/x")), At: time.Now().Add(-time.Hour).UnixMilli()},
		&http.Request{Method: http.MethodPost, RequestURI: "/x"}); err == nil || !strings.Contains(err.Error(), "NTP") {
		t.Errorf("an old signature: %v", err)
	}
}

// signAgain changes a claim and signs it.
func (a *Answers) signAgain(t *testing.T, text string, change func(*peerClaim)) string {
	t.Helper()
	c := claimOf(t, text)
	change(&c)
	claim, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	signature := ed25519.Sign(a.peers.private, append([]byte(peerContext), claim...))
	return base64.RawURLEncoding.EncodeToString(claim) + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// Whatever the header holds, an instance that is in no group trusts it from no caller.
func FuzzPeer(f *testing.F) {
	a, err := New(Config{Group: &keysOfMembers{}, Advertise: "a:1"})
	if err != nil {
		f.Fatal(err)
	}
	req, err := a.peers.request(f.Context(), http.MethodGet, Address{Addr: "a:1"}, "/v1/explain?uid=1", nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(req.Header.Get(peerHeader))
	f.Add("e30.e30")
	f.Fuzz(func(t *testing.T, text string) {
		r := httptest.NewRequest(http.MethodGet, "/v1/explain?uid=1", nil)
		r.Header.Set(peerHeader, text)
		if actor, ok, err := a.Peer(r); ok || err == nil {
			t.Errorf("%q is %+v", text, actor)
		}
	})
}

// Who does not answer is named by its host. The whole address has the key that was asked for, and filled a page.
func TestWhoDoesNotAnswerIsNamedByItsHost(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	p, err := newPeers(&Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.transport.CloseIdleConnections()
	host := gone.Listener.Addr().String()
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		_, err := askInstance[any](t.Context(), p, Address{Addr: host}, method, "/v1/explain?uid=somebody", nil)
		if err == nil || !strings.Contains(err.Error(), host) || strings.Contains(err.Error(), "somebody") || strings.Contains(err.Error(), "http://") {
			t.Errorf("%s: %v", method, err)
		}
	}
}
