// Command ai is a proxy for language models with OpenAI's API, which keeps budgets of money and tokens: of an
// organisation, a team and a user at once. Start `tallygate dev --rules examples/ai/rules.yaml --input none` first:
//
//	go run ./examples/ai
//	curl -iN localhost:8000/v1/chat/completions -H 'X-Org: acme' -H 'X-Team: web' -H 'X-User: 42' \
//	  -d '{"model": "large", "stream": true, "max_tokens": 100, "messages": [{"role": "user", "content": "say 12 words"}]}'
//
// Without --model it answers by itself, with words. Clients' Authorization goes on to the model.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"net/http"
	"net/url"
	"os/signal"
	"syscall"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/pipeline/admit"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8000", "where the proxy listens")
	kafka := flag.String("kafka", "127.0.0.1:9092", "where events go")
	redis := flag.String("redis", "127.0.0.1:6379", "where permits and verdicts are")
	model := flag.String("model", "", "the model's URL, such as https://api.openai.com; default: one that says words")
	table := flag.String("prices", "examples/ai/prices.csv", "the models, with their prices in USD for a million tokens")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *redis, *kafka, *model, *table); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, listen, redis, kafka, model, table string) error {
	prices, err := readPrices(table)
	if err != nil {
		return err
	}
	if model == "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		model = "http://" + l.Addr().String()
		words := &http.Server{Handler: fakeModel(50 * time.Millisecond), ReadHeaderTimeout: 5 * time.Second}
		defer func() { _ = words.Close() }()
		go func() { _ = words.Serve(l) }()
	}
	to, err := url.Parse(model)
	if err != nil {
		return err
	}
	guard, err := tallygate.Open(ctx, tallygate.Config{Redis: redis, Kafka: []string{kafka}, Admit: admit.With(admit.Config{}), Name: "ai"})
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := guard.WaitReady(ready); err != nil {
		log.Print(err) // until then calls are denied: nobody knows what is left
	}
	server := &http.Server{Addr: listen, Handler: proxy(to, prices, guard.Middleware), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	log.Printf("models are at http://%s/v1", listen)
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return guard.Close(last) // sends the events that are queued
}
