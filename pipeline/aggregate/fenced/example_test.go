package fenced_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
)

// An owner takes a partition over, writes, and is taken over.
func Example() {
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "table"))
	if err != nil {
		log.Fatal(err)
	}
	defer kafka.Close()
	conf := sarama.NewConfig()
	conf.Version = sarama.V2_8_0_0
	client, err := sarama.NewClient(kafka.ListenAddrs(), conf)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	ctx := context.Background()
	link := fenced.NewLink(client)
	defer link.Close()
	cfg := fenced.Config{TransactionalID: "tallygate-0", Urgent: link}
	owner, err := fenced.Acquire(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	w := owner.NewWriter("table", 0)
	fence, err := w.Fence(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("recover up to", fence)

	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	told := func(offset int64, _ time.Time, _ error) { fmt.Println("appended at", offset) }
	if err := w.Append(ctx, fenced.Record{Key: []byte("uid=42"), Value: []byte("…")}, true, told); err != nil {
		log.Fatal(err)
	}
	if err := w.Flush(ctx); err != nil {
		log.Fatal(err)
	}

	next, err := fenced.Acquire(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	if fence, err = next.NewWriter("table", 0).Fence(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("recover up to", fence)
	_ = w.Append(ctx, fenced.Record{Key: []byte("uid=42"), Value: []byte("!")}, true, nil)
	fmt.Println("the old owner is fenced:", errors.Is(<-ended, fenced.ErrFenced))
	// Output:
	// recover up to 0
	// appended at 1
	// recover up to 2
	// the old owner is fenced: true
}
