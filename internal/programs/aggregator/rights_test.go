package aggregator

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/internal/testing/apitest"
)

// rights is the least role that each path of the API needs; "" is none, not even a credential. It is
// written here once more, so that nobody changes a right, or adds a path without one, unseen.
var rights = map[string]string{
	"GET /v1/explain":            "viewer",
	"GET /v1/exemptions":         "viewer",
	"GET /v1/grants":             "viewer",
	"POST /v1/grants":            "operator",
	"GET /v1/hot-keys":           "viewer",
	"GET /v1/rules":              "viewer",
	"GET /v1/unmatched":          "viewer",
	"GET /v1/blocked":            "viewer", // unblock: admin
	"GET /v1/whoami":             "viewer",
	"POST /v1/commands":          "operator", // forget: admin
	"POST /v1/dead-letters":      "admin",
	"POST /-/reload":             "admin",
	"GET /openapi.json":          "",
	"GET /healthz":               "",
	"GET /readyz":                "",
	"GET /v1/status":             "viewer",
	"GET /v1/cluster":            "viewer",
	"GET /v1/rules/versions":     "viewer",
	"GET /v1/rules/distribution": "viewer",
	"POST /v1/reads":             "viewer",
	"POST /v1/rules/rollback":    "admin",
}

// more are requests that need another role than their path.
var more = []struct{ method, path, body, least string }{
	{http.MethodGet, "/v1/blocked?partition=0&unblock=all", "", "admin"},
	{http.MethodPost, "/v1/commands", `{"command":"forget","key":{"uid":"1"},"reason":"a test"}`, "admin"},
	{http.MethodPost, "/v1/commands", `{"command":"reset","key":{"uid":"1"},"reason":"a test"}`, "operator"},
}

// Each path with each role, and with none: those below what it needs get 403, and without a credential
// 401, whatever else is wrong with the request.
func TestEachPathWithEachRole(t *testing.T) {
	t.Parallel()
	roles := []string{"none", "service", "viewer", "operator", "admin"}
	var file strings.Builder
	for _, role := range roles[1:] {
		fmt.Fprintf(&file, "- {name: the-%[1]s, role: %[1]s, sha256: %[2]x}\n", role, sha256.Sum256([]byte(role)))
	}
	p := joined(t, groupOf(t, someRules), nil, "--tokens", rulesFile(t, file.String()))
	try := func(method, path, body, least string) {
		t.Helper()
		for _, role := range roles {
			token := role
			if role == "none" {
				token = ""
			}
			got, said := p.ask(token, method, path, body)
			switch {
			case least == "" || slices.Index(roles, role) >= slices.Index(roles, least):
				if got == http.StatusUnauthorized || got == http.StatusForbidden || got == 0 {
					t.Errorf("%s %s as %s: %d %s", method, path, role, got, said)
				}
			case role == "none":
				if got != http.StatusUnauthorized {
					t.Errorf("%s %s without a credential: %d %s", method, path, got, said)
				}
			case got != http.StatusForbidden || !strings.Contains(said, "this needs the role ") || !strings.Contains(said, "the-"+role+" has the role "+role):
				t.Errorf("%s %s as %s: %d %s", method, path, role, got, said)
			}
		}
	}
	for _, o := range apitest.Open(t, apidocs.Aggregator).Operations() {
		least, known := rights[o.Method+" "+o.Path]
		if !known || least != o.Role() {
			t.Errorf("%s %s needs %q by the document, and by this test's table %q (is there: %v)", o.Method, o.Path, o.Role(), least, known)
			continue
		}
		body := ""
		if o.Method == http.MethodPost {
			body = "{}"
		}
		try(o.Method, o.Path, body, least)
	}
	for _, k := range more {
		try(k.method, k.path, k.body, k.least)
	}
}
