package forwardauth_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
)

// A program of one's own answers Traefik, which names the original request in these two headers.
func ExampleNew() {
	table, err := enforce.NewTable(enforce.Config{}) // a blocklist.Feed keeps it in step
	if err != nil {
		panic(err)
	}
	handler, err := forwardauth.New(forwardauth.Config{Decider: table, Headers: forwardauth.Headers{
		UID: "X-User", Method: "X-Forwarded-Method", Path: "X-Forwarded-Uri",
	}})
	if err != nil {
		panic(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-User", "42")
	r.Header.Set("X-Forwarded-Method", "POST")
	r.Header.Set("X-Forwarded-Uri", "/orders?new=1")
	handler.ServeHTTP(w, r)
	fmt.Println(w.Code)
	// Output: 204
}
