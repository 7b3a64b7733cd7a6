package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// deny is the other process: an enforcer that says when it got whose verdict, and when it
// denies.
func deny(rds, prefix string) error {
	ctx := context.Background()
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		return err
	}
	feed, err := blocklist.NewFeed(blocklist.FeedConfig{Redis: redis.NewClient(&redis.Options{Addr: rds}), Prefix: prefix})
	if err != nil {
		return err
	}
	go table.Run(ctx) //nolint:errcheck // it ends with the process
	w := &witness{Table: table, out: bufio.NewWriter(os.Stdout)}
	go func() {
		for !table.Ready() {
			time.Sleep(10 * time.Millisecond)
		}
		w.say("ready\n")
	}()
	return feed.Run(ctx, w)
}

// witness is a table that tells when it denies.
type witness struct {
	*enforce.Table
	mu  sync.Mutex
	out *bufio.Writer
}

func (w *witness) say(lines string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = w.out.WriteString(lines) // nobody hears it any more
	_ = w.out.Flush()
}

func (w *witness) Apply(shard int, changes []verdict.Verdict) {
	received := time.Now().UnixNano()
	w.Table.Apply(shard, changes)
	w.tell(changes, received)
}

// Replace is Apply for a snapshot: after a gap in the stream the feed takes another one.
func (w *witness) Replace(shard int, all []verdict.Verdict) {
	received := time.Now().UnixNano()
	w.Table.Replace(shard, all)
	w.tell(all, received)
}

// tell says which of these verdicts deny.
func (w *witness) tell(verdicts []verdict.Verdict, received int64) {
	var lines []byte
	for _, v := range verdicts {
		now := time.Now()
		if !w.CheckDimsAt(event.FromTime(now), v.APIs[0], v.Key).Allowed {
			lines = fmt.Appendf(lines, "%s %d %d\n", v.Key[0].Value, received, now.UnixNano())
		}
	}
	w.say(string(lines))
}
