package client_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tallygate/tallygate/pipeline/enforce/client"
)

func Example() {
	tries := 0
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if tries++; tries == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer service.Close()

	transport, err := client.New(client.Config{Quota: 50, Per: time.Second})
	if err != nil {
		panic(err)
	}
	c := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	defer c.CloseIdleConnections()
	resp, err := c.Get(service.URL)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, tries)
	// Output: 200 2
}
