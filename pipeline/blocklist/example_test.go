package blocklist_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// An aggregator publishes a verdict, and a service that follows the blocklist enforces it.
func Example() {
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "tallygate.verdicts"))
	check(err)
	defer kafka.Close()
	server, err := miniredis.Run()
	check(err)
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	publisher, err := publish.New(publish.Config{Redis: client, Kafka: kafka.ListenAddrs(), Partitions: 1})
	check(err)
	feed, err := blocklist.NewFeed(blocklist.FeedConfig{Redis: client})
	check(err)
	table, err := enforce.NewTable(enforce.Config{})
	check(err)

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { check(publisher.Run(ctx)) })
	running.Go(func() { check(feed.Run(ctx, table)) })
	running.Go(func() { check(table.Run(ctx)) })

	// The owner of partition 0 hands over what the broker has acknowledged.
	now := event.FromTime(time.Now())
	v := verdict.Verdict{
		Rule: "search-combined", Key: []event.Dim{{Name: "uid", Value: "42"}}, Action: verdict.ActBlock,
		APIs: []string{"search.*"}, Since: now, Until: now + event.Minute, Seq: 1,
	}
	publisher.Own(0)
	publisher.Offer(0, 0, 1, []publish.Record{{
		Offset: 0, Key: verdict.AppendRecordKey(nil, &v), Value: verdict.AppendJSON(nil, &v), Time: now,
	}})

	for table.Check("search.query", "42").Allowed {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(table.Check("search.query", "42").Rule())
	cancel()
	running.Wait()
	// Output: search-combined
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
