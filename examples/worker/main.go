// Command worker has no requests: it exports a report for each user whose name it reads, and asks before.
//
//	seq 1 9 | sed 's/.*/42/' | go run ./examples/worker
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/event"
)

func main() {
	kafka := flag.String("kafka", "127.0.0.1:9092", "a broker of Kafka")
	redis := flag.String("redis", "127.0.0.1:6379", "where the blocklist is")
	prefix := flag.String("prefix", "", "what the installation's names begin with, if not with tallygate")
	flag.Parse()
	if err := run(os.Stdin, tallygate.Config{Redis: *redis, Kafka: []string{*kafka}, Prefix: *prefix}); err != nil {
		log.Fatal(err)
	}
}

func run(users io.Reader, cfg tallygate.Config) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	guard, err := tallygate.Open(ctx, cfg)
	if err != nil {
		return err
	}
	if err := guard.WaitReady(ctx); err != nil {
		log.Print(err) // it rather works without limits than not at all
	}
	lines := bufio.NewScanner(users)
	for lines.Scan() {
		if err := export(guard, lines.Text()); err != nil {
			fmt.Println(err)
		}
	}
	last, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	return errors.Join(lines.Err(), guard.Close(last)) // sends the events that are queued
}

// export exports a report, unless the user had too many.
func export(guard *tallygate.Guard, user string) error {
	decision := guard.Check("report.export", user)
	if !decision.Allowed {
		return fmt.Errorf("no report for %s in the next %s", user, decision.RetryAfter())
	}
	fmt.Printf("the report of %s\n", user)
	guard.Emit(event.Event{UID: user, API: "report.export", Outcome: event.OutcomeSuccess})
	return nil
}
