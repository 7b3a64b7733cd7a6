// Command quickstart is a small shop whose two searches share one limit. Start `tallygate
// dev` first, whose rule search-combined allows five searches and suggestions a minute:
//
//	go run ./examples/quickstart
//	for i in 1 2 3 4 5 6 7 8; do curl -i -H 'X-User: 42' localhost:8000/search; sleep 0.2; done
//
// A third handler gives away coupons, under the strict rule of that name: three a day, and never a
// fourth.
//
//	for i in 1 2 3 4; do curl -i -X POST -H 'X-User: 42' localhost:8000/coupon; done
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8000", "where the shop listens")
	kafka := flag.String("kafka", "127.0.0.1:9092", "where events go")
	redis := flag.String("redis", "127.0.0.1:6379", "where the blocklist is")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	guard := open(ctx, *redis, *kafka)
	mux := http.NewServeMux()
	mux.Handle("GET /search", limited(guard, "search.query", answering("results\n")))
	mux.Handle("GET /suggest", limited(guard, "search.suggest", answering("suggestions\n")))
	mux.Handle("POST /coupon", limited(guard, "coupon.redeem", answering("a coupon\n")))
	mux.Handle("POST /upload", uploading(guard))
	serve(ctx, *listen, mux)

	last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	check(guard.Close(last)) // sends what is queued
}

// open keeps the blocklist in this process's memory, in step with Redis, and sends events to Kafka.
func open(ctx context.Context, redis, kafka string) *tallygate.Guard {
	guard, err := tallygate.Open(ctx, tallygate.Config{
		Redis: redis,
		Kafka: []string{kafka},
		Admit: admit.With(admit.Config{}), // for strict rules; without any leave it out
	})
	check(err)
	ready, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := guard.WaitReady(ready); err != nil {
		log.Print(err) // this shop rather serves without limits than not at all
	}
	return guard
}

// limited answers 429, from memory, to those who may not use the API now, and tells Kafka what the
// others did.
func limited(guard *tallygate.Guard, api string, next http.Handler) http.Handler {
	return guard.Middleware(httplimit.Options{
		UID: user,
		API: func(*http.Request) string { return api },
	})(next)
}

// user says who a request is from. A real shop asks its authentication.
func user(r *http.Request) string { return r.Header.Get("X-User") }

// uploading tells Kafka what no middleware sees: how many bytes came. Emit never blocks.
func uploading(guard *tallygate.Guard) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		guard.Emit(event.Event{UID: user(r), API: "file.upload", Cost: event.Decimal(n) * event.One, Outcome: "success"})
	})
}

func answering(answer string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) })
}

func serve(ctx context.Context, listen string, handler http.Handler) {
	l, err := net.Listen("tcp", listen)
	check(err)
	log.Printf("the shop is open: curl -i -H 'X-User: 42' http://%s/search", l.Addr())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(l); ctx.Err() == nil {
		check(err)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
