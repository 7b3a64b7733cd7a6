package api_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tallygate/tallygate/api"
)

// Who answers with a redirect gets no token to another path or scheme, whatever client the caller brings.
func TestRedirectsAreNotFollowed(t *testing.T) {
	for _, client := range []*http.Client{nil, {}} {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}))
		t.Cleanup(server.Close)
		_, err := api.New(server.URL, client).WithToken("secret").Whoami(t.Context())
		if refused, ok := errors.AsType[*api.Refusal](err); !ok || refused.Status != http.StatusTemporaryRedirect || asked != 1 {
			t.Errorf("%d requests, and %v", asked, err)
		}
	}
}
