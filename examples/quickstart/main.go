// Command quickstart is a small shop whose two handlers share one limit. Start `tallygate
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
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
	"github.com/tallygate/tallygate/pipeline/event"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8000", "where the shop listens")
	kafka := flag.String("kafka", "127.0.0.1:9092", "where events go")
	redisAddr := flag.String("redis", "127.0.0.1:6379", "where the blocklist is")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	emitter, err := emit.New(emit.Config{Brokers: []string{*kafka}})
	check(err)
	table := newTable(ctx, *redisAddr)
	admitter := newAdmitter(ctx, *redisAddr)

	mux := http.NewServeMux()
	mux.Handle("GET /search", limited(table, "search.query", emitting(emitter, "search.query", "results\n")))
	mux.Handle("GET /suggest", limited(table, "search.suggest", emitting(emitter, "search.suggest", "suggestions\n")))
	mux.Handle("POST /coupon", admitted(table, admitter, emitter, "coupon.redeem", answering("a coupon\n")))
	serve(ctx, *listen, mux)

	last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	check(emitter.Close(last)) // sends what is queued
}

// user says who a request is from. A real shop asks its authentication.
func user(r *http.Request) string { return r.Header.Get("X-User") }

// emitting answers, and tells Kafka what the user did. Emit never blocks.
func emitting(emitter *emit.Emitter, api, answer string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, answer)
		emitter.Emit(event.Event{UID: user(r), API: api, Outcome: "success"})
	})
}

// newTable keeps the blocklist in this process's memory, in step with Redis.
func newTable(ctx context.Context, redisAddr string) *enforce.Table {
	table, err := enforce.NewTable(enforce.Config{})
	check(err)
	feed, err := blocklist.NewFeed(blocklist.FeedConfig{Redis: redis.NewClient(&redis.Options{Addr: redisAddr})})
	check(err)
	go func() { check(table.Run(ctx)) }()
	go func() { check(feed.Run(ctx, table)) }() // while Redis is away it retries
	return table
}

// limited answers 429, from memory, to those who may not use the API now.
func limited(table *enforce.Table, api string, next http.Handler) http.Handler {
	return httplimit.Middleware(table, httplimit.Options{
		UID: user,
		API: func(*http.Request) string { return api },
	})(next)
}

// newAdmitter asks for the permits of strict rules, in Redis.
func newAdmitter(ctx context.Context, redisAddr string) *admit.Admitter {
	admitter, err := admit.New(admit.Config{Redis: redis.NewClient(&redis.Options{Addr: redisAddr})})
	check(err)
	go func() { check(admitter.Run(ctx)) }()
	return admitter
}

// admitted also asks for a permit, before the action, where a rule is strict. The middleware emits the
// event, which brings the permit.
func admitted(table *enforce.Table, admitter *admit.Admitter, emitter *emit.Emitter, api string, next http.Handler) http.Handler {
	return httplimit.Middleware(table, httplimit.Options{
		UID:    user,
		API:    func(*http.Request) string { return api },
		Admit:  admitter,
		Events: emitter,
	})(next)
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
