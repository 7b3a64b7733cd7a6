// Command orders is the service of docs/enforce.md: one middleware in front of all its routes.
//
//	go run ./examples/orders       # beside tallygate dev, with the rule of that page
//	curl -i -H 'X-User: 42' localhost:8000/orders/17
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8000", "where the service listens")
	kafka := flag.String("kafka", "127.0.0.1:9092", "a broker of Kafka")
	redis := flag.String("redis", "127.0.0.1:6379", "where the blocklist is")
	prefix := flag.String("prefix", "", "what the installation's names begin with, if not with tallygate")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, tallygate.Config{Redis: *redis, Kafka: []string{*kafka}, Prefix: *prefix}); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, listen string, cfg tallygate.Config) error {
	guard, err := tallygate.Open(ctx, cfg)
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := guard.WaitReady(ready); err != nil {
		log.Print(err) // it rather serves without limits than not at all
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", order)
	limit := guard.Middleware(httplimit.Options{UID: httplimit.Header("X-User"), API: httplimit.MuxAPI(mux)})

	server := &http.Server{Addr: listen, Handler: limit(mux), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return guard.Close(last) // sends the events that are queued
}

// order answers, and notes what only a handler knows for the request's event.
func order(w http.ResponseWriter, r *http.Request) {
	enforce.Note(r.Context(), enforce.Attr("order", event.StringValue(r.PathValue("id"))))
	fmt.Fprintf(w, "order %s\n", r.PathValue("id"))
}
