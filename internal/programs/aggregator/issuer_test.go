package aggregator

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/console/session"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/oidctest"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

const teams = `
- {name: readers, role: viewer, group: tallygate-read}
- {name: fraud, role: operator, group: tallygate-fraud}
- {name: admins, role: admin, group: tallygate-admin}
`

// Two instances accept an issuer's tokens: its groups have roles, and what is passed on to the other
// instance keeps who gave it.
func TestTokensOfAnIssuer(t *testing.T) {
	t.Parallel()
	provider := oidctest.New(t)
	args := []string{"--tokens", rulesFile(t, teams), "--oidc-issuer", provider.URL, "--oidc-audience", "console,scripts"}
	group := groupOf(t, someRules)
	two := []*program{joined(t, group, nil, args...), joined(t, group, nil, args...)}
	token := func(change map[string]any) string { return provider.Sign(provider.Claims(change)) }
	as := map[string]string{
		"nobody":   token(map[string]any{"email": "nia@example.com", "groups": []string{"others"}}),
		"viewer":   token(map[string]any{"email": "vera@example.com", "groups": "tallygate-read"}),
		"operator": token(map[string]any{"email": "fay@example.com", "groups": []string{"tallygate-read", "tallygate-fraud"}, "aud": "scripts"}),
		"admin":    token(map[string]any{"email": "ada@example.com", "groups": []string{"tallygate-admin"}}),
		"expired":  token(map[string]any{"exp": 1}),
		"another":  token(map[string]any{"aud": "shop"}),
		"long":     strings.Repeat("a.", 1<<19),
	}
	if got, said := two[0].ask(as["operator"], http.MethodGet, "/v1/whoami", ""); got != 200 || said != `{"credential":"issuer","name":"fay@example.com","role":"operator"}`+"\n" {
		t.Errorf("who an operator is: %d %s", got, said)
	}
	for i, p := range two {
		for who, want := range map[string]int{"nobody": 403, "viewer": 403, "expired": 401, "another": 401, "long": 431} {
			if who == "long" { // the server refuses such a header before it is ours
				p = &program{Program: p.Program, t: t, url: p.url, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
			}
			if got, said := p.ask(as[who], http.MethodPost, "/v1/commands", block("1")); got != want {
				t.Errorf("%s: %d %s", who, got, said)
			}
		}
		for _, uid := range []string{"a", "b", "c"} {
			if got, said := p.ask(as["operator"], http.MethodPost, "/v1/commands", block(fmt.Sprint(uid, i))); got != 200 {
				t.Errorf("an operator blocks: %d %s", got, said)
			}
		}
	}
	all := auditOf(t, group)
	for _, uid := range []string{"a0", "a1", "b0", "b1", "c0", "c1"} {
		if !strings.Contains(all, `"by":"fay@example.com","on_behalf_of":"alice","command":"block","key":"uid=`+uid+`"`) {
			t.Errorf("the audit does not have who blocked %s: %s", uid, all)
		}
	}
	for _, p := range two {
		if said := p.said.String(); strings.Contains(said, "eyJ") {
			t.Errorf("the log has a token: %s", said)
		}
	}
}

// A reader logs in to the console at the issuer, and blocks a user there: the audit has their name,
// which neither the reader nor the console has given.
func TestFromTheConsoleToTheAudit(t *testing.T) {
	t.Parallel()
	provider := oidctest.New(t)
	group := groupOf(t, someRules)
	p := joined(t, group, nil, "--tokens", rulesFile(t, teams), "--oidc-issuer", provider.URL, "--oidc-audience", "console")
	url := consoleOf(t, p, provider)
	for who, k := range map[string]struct {
		group  string
		status int
	}{"fay": {"tallygate-fraud", 200}, "vera": {"tallygate-read", 403}, "ada": {"tallygate-admin", 200}} {
		provider.User(map[string]any{"email": who + "@example.com", "groups": k.group})
		jar, _ := cookiejar.New(nil)
		browser := &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
		if resp, err := browser.Get(url + "/login/start"); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s logs in: %v %v", who, resp, err)
		} else {
			resp.Body.Close()
		}
		resp, err := browser.Post(url+"/block", "application/x-www-form-urlencoded", strings.NewReader("uid="+who))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != k.status {
			t.Errorf("%s blocks a user: %d, want %d", who, resp.StatusCode, k.status)
		}
	}
	all := auditOf(t, group)
	for _, who := range []string{"fay", "ada"} {
		if !strings.Contains(all, `"by":"`+who+`@example.com","on_behalf_of":"alice","command":"block","key":"uid=`+who+`"`) {
			t.Errorf("the audit does not have who it was: %s", all)
		}
	}
	if strings.Contains(all, "vera") {
		t.Errorf("a viewer is in the audit: %s", all)
	}
}

// consoleOf is a console with one action. It passes the reader's own token on.
func consoleOf(t *testing.T, p *program, provider *oidctest.Provider) string {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(provider.Secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := session.Config{Aggregator: apiclient.New(p.url, nil), Addr: l.Addr(), Listen: l.Addr().String(), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	o := ops.NewOptions("console", "", io.Discard, testrun.NoEnv)
	options := session.NewOptions(o)
	if err := o.ParseOnly([]string{"--oidc-issuer", provider.URL, "--oidc-client-id", provider.Client, "--oidc-client-secret-file", secret, "--external-url", "http://" + l.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	if err := options.Fill(&cfg); err != nil {
		t.Fatal(err)
	}
	m, err := session.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	m.Handlers(mux)
	mux.Handle("POST /block", m.Require(access.Viewer, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _ := p.ask(session.From(r.Context()).Token, http.MethodPost, "/v1/commands", block(r.FormValue("uid")))
		w.WriteHeader(status)
	})))
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: m.Protect(mux)}}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}
