// Command topups receives the webhook of a payment provider, checks its signature, and grants what was bought. A
// webhook that comes again grants nothing more: the payment's id is the grant's.
//
//	WEBHOOK_SECRET=whsec_… go run ./examples/topups
package main

import (
	"cmp"
	"log"
	"net/http"
	"os"
	"time"
)

func main() {
	secret := os.Getenv("WEBHOOK_SECRET")
	if secret == "" {
		log.Fatal("topups: WEBHOOK_SECRET has what the provider signs with")
	}
	r := &receiver{
		secret:     []byte(secret),
		aggregator: cmp.Or(os.Getenv("AGGREGATOR"), "http://127.0.0.1:8081"),
		token:      os.Getenv("TALLYGATE_TOKEN"),
		client:     &http.Client{Timeout: 10 * time.Second},
		now:        time.Now,
	}
	server := &http.Server{Addr: cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8090"), Handler: r, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}
