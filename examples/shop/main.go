// Command shop is a shop of three services, search, orders and coupons, that share only Kafka and
// Redis. Start `tallygate dev --rules examples/shop/rules.yaml --input none`, then all of them:
//
//	go run ./examples/shop --service search --listen 127.0.0.1:8001
//	go run ./examples/shop --service orders --listen 127.0.0.1:8002
//	go run ./examples/shop --service coupons --listen 127.0.0.1:8003
//	curl -i -H 'X-User: 42' localhost:8001/search
//	curl -i -H 'X-User: 42' -X POST 'localhost:8002/orders?discounted=true&total=20'
//	curl -i -H 'X-User: 42' -X POST 'localhost:8003/coupons/WELCOME?total=20'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

func main() {
	service := flag.String("service", "search", "search, orders or coupons")
	listen := flag.String("listen", "127.0.0.1:8001", "where the service listens")
	kafka := flag.String("kafka", "127.0.0.1:9092", "where events go")
	redisAddr := flag.String("redis", "127.0.0.1:6379", "where the blocklist is")
	prefix := flag.String("prefix", "tallygate", "what all names of the installation begin with")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("%s is open at http://%s", *service, l.Addr())
	if err := run(ctx, *service, l, *kafka, *redisAddr, *prefix); err != nil {
		log.Fatal(err)
	}
}

// services make the handler of each service.
var services = map[string]func(*shop) http.Handler{"search": search, "orders": orders, "coupons": coupons}

// shop is what a service needs. Tests have other emitters and admitters.
type shop struct {
	emitter  httplimit.Emitter
	table    *enforce.Table
	admitter enforce.Admitter
}

// run serves until ctx ends, and then sends what is queued.
func run(ctx context.Context, service string, l net.Listener, kafka, redisAddr, prefix string) error {
	handler := services[service]
	if handler == nil {
		return fmt.Errorf("no service %q", service)
	}
	emitter, err := emit.New(emit.Config{Brokers: []string{kafka}, Prefix: prefix})
	if err != nil {
		return err
	}
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: redisAddr})
	defer func() { _ = client.Close() }()
	feed, err := blocklist.NewFeed(blocklist.FeedConfig{Redis: client, Prefix: prefix})
	if err != nil {
		return err
	}
	admitter, err := admit.New(admit.Config{Redis: client, Prefix: prefix})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler(&shop{emitter, table, admitter}), ReadHeaderTimeout: 5 * time.Second}

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return table.Run(ctx) })
	g.Go(func() error { return admitter.Run(ctx) })
	g.Go(func() error { return feed.Run(ctx, table) }) // while Redis is away it tries again
	g.Go(func() error {
		ready, cancel := context.WithTimeout(ctx, 10*time.Second)
		if err := errors.Join(table.WaitReady(ready), admitter.WaitReady(ready)); err != nil {
			log.Print(err) // it rather serves without limits than not at all
		}
		cancel()
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		if err := server.Serve(l); ctx.Err() == nil {
			return err
		}
		return nil
	})
	err = g.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if closed := emitter.Close(last); err == nil {
		err = closed
	}
	return err
}

// user says who a request is from. A real shop asks its authentication.
func user(r *http.Request) string { return r.Header.Get("X-User") }

// limited answers 429, from memory, to those who may not use the API now.
func (s *shop) limited(api func(*http.Request) string, next http.HandlerFunc) http.Handler {
	return httplimit.Middleware(s.table, httplimit.Options{UID: user, API: api})(next)
}
