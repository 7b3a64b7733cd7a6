package access

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// issuer stands for one: a token is NAME.GROUP,GROUP.x
type issuer struct{}

func (issuer) Verify(_ context.Context, token string) (Claims, error) {
	parts := strings.Split(token, ".")
	switch parts[0] {
	case "forged":
		return Claims{}, errors.New("its signature is not that of the issuer")
	case "down":
		return Claims{}, errors.Join(ErrUnavailable, errors.New("10.0.0.7 does not answer"))
	}
	return Claims{Name: parts[0], Groups: strings.Split(parts[1], ",")}, nil
}

const teams = `
- {name: readers, role: viewer, group: tallygate-read}
- {name: fraud, role: operator, group: tallygate-fraud}
- {name: admins, role: admin, group: "tallygate admins"}
- {name: shops, role: service, group: tallygate-shop}
- {name: fraud again, role: viewer, group: tallygate-fraud}
`

// The highest role of a token's groups counts, and who it is is what the token says.
func TestGroupsHaveRoles(t *testing.T) {
	g := guard(t, Config{Tokens: tokens(t, teams), Verifier: issuer{}, Addr: anywhere})
	for token, want := range map[string]string{
		"fay.tallygate-fraud.x":                                "fay operator",
		"vera.tallygate-read.x":                                "vera viewer",
		"ada.tallygate-read,tallygate admins,tallygate-shop.x": "ada admin",
		"both.tallygate-shop,tallygate-read.x":                 "both viewer",
	} {
		if got, who := ask(g, Viewer, bearer(token)); got != http.StatusOK || who != want {
			t.Errorf("%s: %d %s, want %s", token, got, who, want)
		}
	}
	for token, want := range map[string]int{"nia..x": 403, "nia.tallygate.x": 403, "nia.TALLYGATE-READ.x": 403, "shop.tallygate-shop.x": 403} {
		if got, said := ask(g, Viewer, bearer(token)); got != want || !strings.Contains(said, "needs the role viewer, and") {
			t.Errorf("%s: %d %s", token, got, said)
		}
	}
	if got, _ := ask(g, Service, bearer("shop.tallygate-shop.x")); got != http.StatusOK {
		t.Errorf("a service: %d", got)
	}
}

// What is no token of the issuer is refused as any unknown token is, and costs no check by it.
func TestTokensThatTheIssuerDoesNotKnow(t *testing.T) {
	var log bytes.Buffer
	g := guard(t, Config{Tokens: staff(t), Verifier: issuer{}, Addr: anywhere, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for about, token := range map[string]string{
		"forged": "forged.tallygate-read.x", "no three parts": "fay.tallygate-read", "four parts": "fay.tallygate-read.x.y",
		"1 MB": "fay." + strings.Repeat("a", 1<<20) + ".x", "17 KB": "fay." + strings.Repeat("a", 17<<10) + ".x", "empty": "",
	} {
		if got, said := ask(g, Viewer, bearer(token)); got != http.StatusUnauthorized || !strings.Contains(said, "this needs a credential") {
			t.Errorf("%s: %d %s", about, got, said)
		}
	}
	if got, who := ask(g, Viewer, bearer("viewer")); got != http.StatusOK || who != "vera viewer" {
		t.Errorf("a token of the file: %d %s", got, who)
	}
	if got, said := ask(g, Viewer, bearer("down.tallygate-read.x")); got != http.StatusServiceUnavailable || strings.Contains(said, "10.0.0.7") {
		t.Errorf("a token that cannot be checked: %d %s", got, said)
	}
	if said := log.String(); strings.Count(said, "refused a token") != 1 || strings.Contains(said, "tallygate-read") {
		t.Errorf("the log: %s", said)
	}
	if got, _ := ask(guard(t, Config{Tokens: tokens(t, teams), Addr: anywhere}), Viewer, bearer("fay.tallygate-read.x")); got != http.StatusUnauthorized {
		t.Errorf("without an issuer: %d", got)
	}
	if _, err := New(Config{Verifier: issuer{}, Addr: loopback}); err == nil || !strings.Contains(err.Error(), "--tokens FILE") {
		t.Errorf("an issuer without a file: %v", err)
	}
}
