package emit_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/netip"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// exampleBroker stands for the Kafka that an application has.
func exampleBroker() *kfake.Cluster {
	return kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, topic))
}

func Example() {
	kafka := exampleBroker()
	defer kafka.Close()

	emitter, err := emit.New(emit.Config{
		Brokers: kafka.ListenAddrs(),
		OnDrop:  func(d emit.Drop) { slog.Warn("events dropped", "reason", d.Reason, "events", d.Events, "err", d.Err) },
	})
	if err != nil {
		log.Fatal(err)
	}

	emitter.Emit(event.Event{
		ID:      "order-1001", // the same id twice is one event
		UID:     "42",
		API:     "order.create",
		Outcome: "success",
		Time:    event.FromTime(time.Now()),
		IP:      netip.MustParseAddr("203.0.113.9"),
		Attrs:   []event.Attr{{Name: "discounted", Value: event.BoolValue(true)}},
	})

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := emitter.Close(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(emitter.Stats().Emitted, "event emitted")
	// Output: 1 event emitted
}

func ExampleEmitter_EmitWait() {
	kafka := exampleBroker()
	defer kafka.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	emitter, err := emit.New(emit.Config{Brokers: kafka.ListenAddrs(), MaxEvents: 100})
	if err != nil {
		log.Fatal(err)
	}
	for n := range 1000 { // ten times what the queue holds
		if err := emitter.EmitWait(ctx, event.Event{UID: fmt.Sprint(n % 7), API: "import.row"}); err != nil {
			log.Fatal(err)
		}
	}
	if err := emitter.Close(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(emitter.Stats().Emitted, "events,", emitter.Stats().Dropped.Total(), "dropped")
	// Output: 1000 events, 0 dropped
}

func ExampleEmitter_Stats() {
	// No broker.
	emitter, err := emit.New(emit.Config{Brokers: []string{"127.0.0.1:1"}, MaxEvents: 1})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		emitter.Emit(event.Event{UID: "42", API: "search.query"})
	}
	s := emitter.Stats()
	fmt.Println(s.Queued, "queued,", s.Dropped[emit.QueueFull], "dropped:", emit.QueueFull)

	ctx, cancel := context.WithCancel(context.Background())
	cancel() // don't wait
	fmt.Println(emitter.Close(ctx))
	// Output:
	// 1 queued, 2 dropped: queue_full
	// emit: close: 1 events not delivered: context canceled
}
