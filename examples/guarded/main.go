// Command guarded shows everything that the enforcer offers, with its parts put together by hand: one
// middleware in front of all routes limits, answers and emits. Start `tallygate dev` first:
//
//	go run ./examples/guarded
//	for i in 1 2 3 4 5 6 7 8; do curl -i -H 'X-User: 42' localhost:8000/search/shoes; sleep 0.2; done
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8000", "where the service listens")
	kafka := flag.String("kafka", "127.0.0.1:9092", "where events go")
	redisAddr := flag.String("redis", "127.0.0.1:6379", "where the blocklist is")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *kafka, *redisAddr); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, listen, kafka, redisAddr string) error {
	emitter, err := emit.New(emit.Config{Brokers: []string{kafka}})
	if err != nil {
		return err
	}
	table, err := newTable()
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: redisAddr})
	feed, err := blocklist.NewFeed(blocklist.FeedConfig{Redis: client})
	if err != nil {
		return err
	}
	admitter, err := admit.New(admit.Config{Redis: client})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /search/{query}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "found") })
	mux.HandleFunc("POST /orders", order)
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return table.Run(ctx) })
	g.Go(func() error { return feed.Run(ctx, table) })
	g.Go(func() error { return admitter.Run(ctx) })
	g.Go(func() error {
		waitReady(ctx, table, admitter)
		return serve(ctx, listen, guard(table, mux, admitter, emitter))
	})
	err = g.Wait()
	last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if failed := emitter.Close(last); err == nil {
		err = failed
	}
	return err
}

// waitReady waits for the first snapshot and the rules, but not for long: without them orders are
// closed, and searches have a local limit.
func waitReady(ctx context.Context, table *enforce.Table, admitter *admit.Admitter) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := errors.Join(table.WaitReady(ctx), admitter.WaitReady(ctx)); err != nil {
		log.Print(err)
	}
}

// newTable makes the table. While it is stale, orders fail closed and searches have a local limit.
func newTable() (*enforce.Table, error) {
	return enforce.NewTable(enforce.Config{
		OnStale:      enforce.LastKnown,
		MaxStaleness: 30 * time.Second,
		Instances:    10,
		Rules: map[string]enforce.RuleOnStale{
			"orders":          {Do: enforce.Closed, APIs: []string{"order.*"}},
			"search-combined": {Do: enforce.Local, APIs: []string{"search.*"}, Limit: 100, Per: time.Minute},
		},
		OffFile: "/etc/tallygate/off",
	})
}

// guard limits, answers and emits.
func guard(table *enforce.Table, mux *http.ServeMux, admitter enforce.Admitter, emitter httplimit.Emitter) http.Handler {
	limit := httplimit.Middleware(table, httplimit.Options{
		UID: httplimit.Header("X-User"), // a real service asks its authentication: httplimit.ContextValue
		IP:  httplimit.ClientIP(netip.MustParsePrefix("10.0.0.0/8")),
		API: httplimit.Named(map[string]string{
			"get.search.query": "search.query",
			"post.orders":      "order.create",
		}, httplimit.MuxAPI(mux)),
		Answers: enforce.Answers{Rules: map[string]enforce.PublicRule{
			"search-combined": {Name: "searches", Messages: map[string]string{
				"":   "Too many searches. Try again in {seconds} s.",
				"de": "Zu viele Suchen. Bitte in {seconds} s wieder.",
			}},
		}},
		Skip:   httplimit.PathIn("/healthz"), // neither checked nor emitted
		Admit:  admitter,                     // for rules with strict and scope: instance; without any leave it out
		Events: emitter,
	})
	return limit(mux)
}

// order takes an order. It notes what only a handler knows for the event that the middleware emits.
func order(w http.ResponseWriter, r *http.Request) {
	enforce.Note(r.Context(), enforce.Attr("discounted", event.BoolValue(r.FormValue("coupon") != "")))
	w.WriteHeader(http.StatusCreated)
}

func serve(ctx context.Context, listen string, handler http.Handler) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	log.Printf("curl -i -H 'X-User: 42' http://%s/search/shoes", l.Addr())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}
