package issuer

import (
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/oidctest"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func options(t *testing.T) *ops.Options {
	t.Helper()
	return ops.NewOptions("x", "", io.Discard, testrun.Env(map[string]string{"TALLYGATE_OIDC_CLIENT_SECRET": "env"}))
}

// An aggregator with --oidc-ca asks an issuer over TLS, and one without does not believe its certificate.
func TestAnIssuerOverTLS(t *testing.T) {
	p := oidctest.NewTLS(t)
	p.Config.ErrorLog = log.New(io.Discard, "", 0)
	ca := file(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})))
	for _, k := range []struct {
		args []string
		good bool
	}{{[]string{"--oidc-ca", ca}, true}, {nil, false}} {
		o := options(t)
		i := NewOptions(o)
		if err := o.ParseOnly(append(k.args, "--oidc-issuer", p.URL, "--oidc-audience", "a,console", "--oidc-name-claim", "sub")); err != nil {
			t.Fatal(err)
		}
		v, err := i.Build()
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.Verify(t.Context(), p.Sign(p.Claims(nil)))
		if k.good && (err != nil || got.Name != "1") || !k.good && !errors.Is(err, access.ErrUnavailable) {
			t.Errorf("%v: %+v %v", k.args, got, err)
		}
		v.(*Issuer).cfg.Client.CloseIdleConnections()
	}
}

func TestMistakesInTheOptions(t *testing.T) {
	for args, want := range map[string]string{
		"--oidc-audience a":                        "need --oidc-issuer",
		"--oidc-ca x":                              "need --oidc-issuer",
		"--oidc-issuer https://x":                  "--oidc-audience",
		"--oidc-issuer http://x --oidc-audience a": "want https://",
		"--oidc-issuer https://x --oidc-audience a --oidc-ca /nosuch":         "read --oidc-ca",
		"--oidc-issuer https://x --oidc-audience a --oidc-ca " + file(t, "x"): "no PEM certificate",
	} {
		o := options(t)
		i := NewOptions(o)
		if err := o.ParseOnly(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if _, err := i.Build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
	for args, want := range map[string]string{
		"--oidc-client-id a":                        "need --oidc-issuer",
		"--oidc-client-secret-file x":               "need --oidc-issuer",
		"--oidc-issuer https://x":                   "needs --oidc-client-id",
		"--oidc-issuer http://x --oidc-client-id a": "want https://",
		"--oidc-issuer https://x --oidc-client-id a --oidc-client-secret-file /nosuch": "read a secret",
	} {
		o := options(t)
		l := NewLoginOptions(o)
		if err := o.ParseOnly(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
	o := options(t)
	i, l := NewOptions(options(t)), NewLoginOptions(o)
	if err := o.ParseOnly(nil); err != nil {
		t.Fatal(err)
	}
	if v, err := i.Build(); v != nil || err != nil {
		t.Errorf("no issuer: %v %v", v, err)
	}
	if f, err := l.Build(); f != nil || err != nil {
		t.Errorf("no issuer: %v %v", f, err)
	}
}

// The client's secret is read at each login, so that it changes without a restart; and the issuer's
// refusal is not told with what was sent.
func TestTheClientsSecretChanges(t *testing.T) {
	p := oidctest.New(t)
	p.User(map[string]any{"email": "fay@example.com"})
	secret := file(t, "old\n")
	o := options(t)
	l := NewLoginOptions(o)
	if err := o.ParseOnly([]string{"--oidc-issuer", p.URL, "--oidc-client-id", p.Client, "--oidc-client-secret-file", secret}); err != nil {
		t.Fatal(err)
	}
	flow, err := l.Build()
	if err != nil {
		t.Fatal(err)
	}
	defer flow.issuer.cfg.Client.CloseIdleConnections()
	try := func() (Grant, error) {
		to, pending, err := flow.Start(t.Context(), p.URL+"/callback")
		if err != nil {
			t.Fatal(err)
		}
		resp, err := flow.issuer.cfg.Client.Get(to) // which follows no redirect
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		back, err := resp.Location()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := flow.Finish(t.Context(), p.URL+"/callback", Pending{State: "another"}, back.Query()); err == nil || !strings.Contains(err.Error(), "state") {
			t.Errorf("another state: %v", err)
		}
		q := back.Query()
		q.Set("iss", "https://evil.example")
		if _, err := flow.Finish(t.Context(), p.URL+"/callback", pending, q); err == nil || !strings.Contains(err.Error(), "another issuer") {
			t.Errorf("another issuer: %v", err)
		}
		return flow.Finish(t.Context(), p.URL+"/callback", pending, back.Query())
	}
	if _, err := try(); err == nil || !strings.Contains(err.Error(), "the issuer refuses: invalid_client") || strings.Contains(err.Error(), "old") {
		t.Errorf("the old secret: %v", err)
	}
	if err := os.WriteFile(secret, []byte(p.Secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if g, err := try(); err != nil || g.Token == "" || g.Refresh != "" || g.Until.IsZero() {
		t.Errorf("the new secret: %+v %v", g, err)
	}
	if _, err := flow.Finish(t.Context(), "", Pending{State: "s"}, url.Values{"state": {"s"}, "error": {"<b>you</b>"}}); err == nil || strings.Contains(err.Error(), "<b>") || Said(err) != "" {
		t.Errorf("an error that nobody knows: %v", err)
	}
	p.Down.Store(true)
	if _, err := flow.Renew(t.Context(), "x"); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("the issuer is down: %v", err)
	}
}
