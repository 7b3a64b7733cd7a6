package aggregate

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// asking is an instance behind a front that authenticates callers: other instances by their
// signature, others by a header.
type asking struct {
	*member
	server *httptest.Server

	mu     sync.Mutex
	passed []*http.Request // forwarded by others, as they arrived, with bodies
}

func (r *rig) startAsking(change ...func(*Config)) *asking {
	r.t.Helper()
	a := &asking{}
	a.server = r.serve(http.HandlerFunc(a.serve))
	change = append(change, func(c *Config) { c.Advertise = a.server.Listener.Addr().String() })
	a.member = r.start(compile(r.t, yearly), change...)
	return a
}

func (a *asking) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	actor, peer, err := a.Peer(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	if peer {
		kept := r.Clone(r.Context())
		kept.Body = io.NopCloser(bytes.NewReader(body))
		a.mu.Lock()
		a.passed = append(a.passed, kept)
		a.mu.Unlock()
	} else {
		actor = Actor{Name: r.Header.Get("X-Test-Actor"), Role: "operator"}
	}
	actor.May = func(command string) error {
		if command == "forget" {
			return errors.New("not you")
		}
		return nil
	}
	r = r.WithContext(WithActor(r.Context(), actor))
	if strings.HasPrefix(r.URL.Path, "/v1/commands") {
		a.ServeCommand(w, r)
	} else {
		a.ServeExplain(w, r)
	}
}

func (a *asking) command(t *testing.T, actor, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, a.server.URL+"/v1/commands", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Test-Actor", actor)
	return answer(t, a.server, req)
}

func answer(t *testing.T, by *httptest.Server, req *http.Request) (int, string) {
	t.Helper()
	resp, err := by.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// Whichever instance is asked, the audit has the credential's name, and on whose behalf it acts. A
// forwarded request counts once, at one instance, as it was sent, and only if a member of the group
// sent it.
func TestCommandsCarryWhoGaveThem(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		r.share = []int32{0, 2}
		two := []*asking{r.startAsking()}
		r.share = []int32{1, 3}
		two = append(two, r.startAsking())
		r.shared(two[0].member, two[1].member)
		type given struct{ key, by string }
		var want []given
		for i, uid := range uids(8) {
			for _, c := range []struct{ actor, body, by string }{
				{"deploy-bot", `"by":"alice"`, `"by":"deploy-bot","on_behalf_of":"alice"`},
				{"deploy-bot", `"by":"a","on_behalf_of":"carol"`, `"by":"deploy-bot","on_behalf_of":"carol"`},
				{"deploy-bot", `"for":""`, `"by":"deploy-bot","command"`},
				{"", `"by":"dave"`, `"by":"dave","command"`},
			} {
				body := fmt.Sprintf(`{"command":"unblock","key":{"uid":%q},"reason":"a test",%s}`, uid, c.body)
				// The group may still rebalance: an unanswered command may count.
				eventually(t, uid+" is unblocked", func() bool {
					status, _ := two[i%2].command(t, c.actor, body)
					return status == http.StatusOK
				})
				want = append(want, given{fmt.Sprintf(`"key":"uid=%s"`, uid), c.by})
			}
		}
		if status, said := two[0].command(t, "deploy-bot", `{"command":"forget","key":{"uid":"1"},"reason":"a test"}`); status != http.StatusForbidden || !strings.Contains(said, "not you") {
			t.Errorf("a command that the actor may not give: %d %s", status, said)
		}
		eventually(t, "the audit has who gave them, for each of the keys", func() bool {
			var all []string
			for p := range int32(rigPartitions) {
				for _, rec := range r.records(r.names.Audit, p) {
					all = append(all, string(rec.Value))
				}
			}
			return !slices.ContainsFunc(want, func(g given) bool {
				return !slices.ContainsFunc(all, func(said string) bool { return strings.Contains(said, g.key) && strings.Contains(said, g.by) })
			})
		})
		var passed *http.Request
		var to *asking
		for _, a := range two {
			a.mu.Lock()
			if len(a.passed) > 0 {
				passed, to = a.passed[0], a
			}
			a.mu.Unlock()
		}
		if passed == nil {
			t.Fatal("nothing was passed on")
		}
		refusesForged(t, passed, to, two)
	})
}

// An instance that returns under its name, without a rebalance, has a new key, and the others
// accept it.
func TestARestartedInstanceIsKnown(t *testing.T) {
	onKafka(t, func(t *testing.T, r *rig) {
		named := func(name string) func(*Config) {
			return func(c *Config) { c.InstanceID, c.SessionTimeout = name, 30*time.Second }
		}
		one, two := r.startAsking(named("one")), r.startAsking(named("two"))
		r.shared(one.member, two.member)
		one.end(t)
		one.server.Close()
		one = r.startAsking(named("one"))
		r.ready(one.member)
		for _, uid := range uids(8) {
			for _, at := range []*asking{one, two} {
				eventually(t, "a command about "+uid, func() bool {
					status, said := at.command(t, "bot", fmt.Sprintf(`{"command":"unblock","key":{"uid":%q},"reason":"a test"}`, uid))
					if status != http.StatusOK {
						t.Logf("%d %s", status, said)
					}
					return status == http.StatusOK
				})
			}
		}
	})
}

// refusesForged sends a forwarded request again, as someone who observed it could.
func refusesForged(t *testing.T, passed *http.Request, to *asking, all []*asking) {
	t.Helper()
	text := passed.Header.Get(peerHeader)
	body, _ := io.ReadAll(passed.Body)
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	own := func(change func(*peerClaim)) string { // a claim signed by a foreign key
		first, _, _ := strings.Cut(text, ".")
		claim, _ := base64.RawURLEncoding.DecodeString(first)
		var c peerClaim
		if err := json.Unmarshal(claim, &c); err != nil {
			t.Fatal(err)
		}
		change(&c)
		claim, _ = json.Marshal(c)
		return base64.RawURLEncoding.EncodeToString(claim) + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, append([]byte(peerContext), claim...)))
	}
	// Signed by a member, then changed.
	signed := func(by *asking, change func(*http.Request)) (*http.Request, []byte) {
		body := []byte(`{"command":"block","for":"1h","key":{"uid":"1"},"reason":"a test"}`)
		req, err := by.peers.request(WithActor(t.Context(), Actor{Name: "x"}), http.MethodPost, address{addr: to.cfg.Advertise}, "/v1/commands?", body)
		if err != nil {
			t.Fatal(err)
		}
		change(req)
		return req, body
	}
	other := all[0]
	if other == to {
		other = all[1]
	}
	send := func(req *http.Request, body []byte) (int, string) {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return answer(t, to.server, req)
	}
	again := func(header string, body []byte) (int, string) {
		req, _ := http.NewRequest(http.MethodPost, to.server.URL+passed.RequestURI, nil)
		req.Header.Set(peerHeader, header)
		return send(req, body)
	}
	forged := map[string]func() (int, string){
		"sent again":      func() (int, string) { return again(text, body) },
		"no signature":    func() (int, string) { return again("x", body) },
		"a cut signature": func() (int, string) { return again(text[:len(text)-4], body) },
		"a key of no member": func() (int, string) {
			key := base64.RawURLEncoding.EncodeToString(private.Public().(ed25519.PublicKey))
			return again(own(func(c *peerClaim) { c.Key, c.At = key, time.Now().UnixMilli() }), body)
		},
		"signed by another key": func() (int, string) { return again(own(func(*peerClaim) {}), body) },
		"another body": func() (int, string) {
			req, body := signed(other, func(*http.Request) {})
			return send(req, bytes.Replace(body, []byte("1h"), []byte("9h"), 1))
		},
		"another path": func() (int, string) {
			return send(signed(other, func(r *http.Request) { r.URL.Path = "/v1/commands/x" }))
		},
		"another method": func() (int, string) {
			return send(signed(other, func(r *http.Request) { r.Method = http.MethodPut }))
		},
		"another instance": func() (int, string) {
			return send(signed(other, func(r *http.Request) { r.URL.Host = other.cfg.Advertise }))
		},
		"two signatures": func() (int, string) {
			return send(signed(other, func(r *http.Request) { r.Header.Add(peerHeader, "x") }))
		},
	}
	for about, try := range forged {
		if status, said := try(); status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", about, status, said)
		}
	}
	if status, said := send(signed(other, func(*http.Request) {})); status != http.StatusOK && status != http.StatusServiceUnavailable {
		t.Errorf("what a member signed: %d %s", status, said) // 503: the key is another instance's
	}
	late := answers{instance: &instance{cfg: to.cfg}}
	req, _ := signed(other, func(*http.Request) {})
	req.RequestURI = req.URL.RequestURI()
	c, _, err := parsePeer(req.Header.Get(peerHeader))
	if err == nil {
		c.At -= 2 * peerClock.Milliseconds()
		err = late.checkClaim(c, req)
	}
	if err == nil || !strings.Contains(err.Error(), "NTP") {
		t.Errorf("an old signature: %v", err)
	}
}

// Whatever the header holds, an instance that is in no group trusts it from no caller.
func FuzzPeer(f *testing.F) {
	p, err := newPeers(&Config{})
	if err != nil {
		f.Fatal(err)
	}
	a := &answers{instance: &instance{cfg: Config{Advertise: "a:1"}, peers: p}}
	req, err := p.request(f.Context(), http.MethodGet, address{addr: "a:1"}, "/v1/explain?uid=1", nil)
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
		err := p.askInstance(t.Context(), address{addr: host}, method, "/v1/explain?uid=somebody", nil, nil)
		if err == nil || !strings.Contains(err.Error(), host) || strings.Contains(err.Error(), "somebody") || strings.Contains(err.Error(), "http://") {
			t.Errorf("%s: %v", method, err)
		}
	}
}
