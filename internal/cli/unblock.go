package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/internal/input"
)

// blockedAnswer is the response of GET /v1/blocked: one page of a partition.
type blockedAnswer struct {
	Partitions int `json:"partitions"`
	Keys       []struct {
		Key   map[string]string `json:"key"`
		Rules []string          `json:"rules"`
	} `json:"keys"`
	Next string `json:"next"` // "" on the last page
}

// atOnce is how many commands are in flight at most.
const atOnce = 32

// unblockMany ends the verdicts of a rule, or of any rule, for all keys: it counts the keys, asks, and
// sends the command for each. It reads the pages twice, and so keeps one of them in memory.
func (k *keyCommand) unblockMany(ctx context.Context) error {
	n := 0
	err := k.eachPage(ctx, func(a *blockedAnswer) error {
		n += len(a.Keys)
		return nil
	})
	if err != nil {
		return err
	}
	what := plural(n, "blocked key")
	if k.body.Rule != "" {
		what = plural(n, "key") + " blocked by " + k.body.Rule
	}
	fmt.Fprintln(k.stderr, what)
	if n == 0 {
		return nil
	}
	if !k.yes {
		fmt.Fprint(k.stderr, "Unblock them? (yes/no) ")
		if err := k.confirmed(ctx); err != nil {
			return err
		}
	}
	var done, found atomic.Int64
	say := input.NewProgress(k.stderr, "unblock", int64(n), false, done.Load)
	err = k.eachPage(ctx, func(a *blockedAnswer) error {
		found.Add(int64(len(a.Keys)))
		return k.unblockPage(ctx, a, &done)
	})
	say.Finish()
	n = max(n, int(found.Load())) // there may be more of them now
	if _, writeErr := fmt.Fprintf(k.stdout, "%d of %s unblocked\n", done.Load(), plural(n, "key")); writeErr != nil {
		err = errors.Join(err, writeErr)
	}
	return err
}

func (k *keyCommand) unblockPage(ctx context.Context, a *blockedAnswer, done *atomic.Int64) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, b := range a.Keys {
		g.Go(func() error {
			body := k.body
			body.Key = b.Key
			if _, err := k.api.post(ctx, "/v1/commands", body); err != nil {
				return fmt.Errorf("%v: %w", b.Key, err)
			}
			done.Add(1)
			return nil
		})
	}
	return g.Wait()
}

// confirmed waits for a yes. A read from a terminal cannot be interrupted: after Ctrl-C it is left
// running until the process ends.
func (k *keyCommand) confirmed(ctx context.Context) error {
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(k.stdin).ReadString('\n') // the end of the input is no yes
		answer <- line
	}()
	select {
	case line := <-answer:
		if strings.TrimSpace(line) == "yes" {
			return nil
		}
		return errors.New("nothing was done: answer yes, or use --yes")
	case <-ctx.Done():
		fmt.Fprintln(k.stderr)
		return errors.New("nothing was done: interrupted")
	}
}

// eachPage reads the blocked keys of every partition, page by page.
func (k *keyCommand) eachPage(ctx context.Context, do func(*blockedAnswer) error) error {
	for partition, of := 0, 1; partition < of; partition++ {
		for after := ""; ; {
			q := url.Values{"unblock": {"all"}, "partition": {strconv.Itoa(partition)}} // checks the role before the first command
			if k.body.Rule != "" {
				q.Set("rule", k.body.Rule)
			}
			if after != "" {
				q.Set("after", after)
			}
			text, err := k.api.get(ctx, "/v1/blocked?"+q.Encode())
			if err != nil {
				return fmt.Errorf("list the blocked keys of partition %d: %w", partition, err)
			}
			var a blockedAnswer
			if err := json.Unmarshal(text, &a); err != nil {
				return fmt.Errorf("read the aggregator's response: %w", err)
			}
			of = a.Partitions
			if err := do(&a); err != nil {
				return err
			}
			if a.Next == "" || a.Next == after {
				break
			}
			after = a.Next
		}
	}
	return nil
}
