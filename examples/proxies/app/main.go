// Command app is a service that knows nothing of Tallygate, for the proxies of this folder to stand in
// front of: it answers every request.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8000", "where the app listens")
	flag.Parse()
	server := &http.Server{Addr: *listen, ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(answer)}
	log.Fatal(server.ListenAndServe())
}

func answer(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "the app got %s %s\n", r.Method, r.URL.Path)
}
