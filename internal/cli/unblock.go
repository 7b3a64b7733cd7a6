package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/internal/input"
)

// blockedAnswer is what GET /v1/blocked answers of a partition.
type blockedAnswer struct {
	Partitions int `json:"partitions"`
	Keys       []struct {
		Key   map[string]string `json:"key"`
		Rules []string          `json:"rules"`
	} `json:"keys"`
}

// atOnce is how many commands are on their way at a time.
const atOnce = 32

// unblockMany ends what a rule, or any, has in force, for all keys: it finds and counts them,
// asks, and gives each the command.
func (k *keyCommand) unblockMany(ctx context.Context) error {
	keys, err := k.blockedKeys(ctx)
	if err != nil {
		return err
	}
	what := "anything has blocked"
	if k.body.Rule != "" {
		what = k.body.Rule + " has blocked"
	}
	fmt.Fprintf(k.stderr, "%s that %s\n", plural(len(keys), "key"), what)
	if len(keys) == 0 {
		return nil
	}
	if !k.yes {
		fmt.Fprint(k.stderr, "unblock them? (yes/no) ")
		if err := k.confirmed(ctx); err != nil {
			return err
		}
	}
	var done atomic.Int64
	say := input.NewProgress(k.stderr, "unblock", int64(len(keys)), false, done.Load)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, key := range keys {
		g.Go(func() error {
			body := k.body
			body.Key = key
			if _, err := k.api.post(ctx, "/v1/commands", body); err != nil {
				return fmt.Errorf("%v: %w", key, err)
			}
			done.Add(1)
			return nil
		})
	}
	err = g.Wait()
	say.Finish()
	if _, told := fmt.Fprintf(k.stdout, "%d of %s unblocked\n", done.Load(), plural(len(keys), "key")); told != nil {
		err = errors.Join(err, told)
	}
	return err
}

// confirmed waits for a yes. A read from a terminal cannot be broken off: on Ctrl-C it is left to the process' end.
func (k *keyCommand) confirmed(ctx context.Context) error {
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(k.stdin).ReadString('\n') // no answer is none
		answer <- line
	}()
	select {
	case line := <-answer:
		if strings.TrimSpace(line) == "yes" {
			return nil
		}
		return errors.New("nothing was done: answer yes, or give --yes")
	case <-ctx.Done():
		fmt.Fprintln(k.stderr)
		return errors.New("nothing was done: interrupted")
	}
}

// blockedKeys asks for the keys of every partition.
func (k *keyCommand) blockedKeys(ctx context.Context) (keys []map[string]string, err error) {
	for partition, of := 0, 1; partition < of; partition++ {
		q := fmt.Sprintf("unblock=all&partition=%d", partition) // refused at once to who may not
		if k.body.Rule != "" {
			q += "&rule=" + url.QueryEscape(k.body.Rule)
		}
		text, err := k.api.get(ctx, "/v1/blocked?"+q)
		if err != nil {
			return nil, fmt.Errorf("find what is blocked in partition %d: %w", partition, err)
		}
		var a blockedAnswer
		if err := json.Unmarshal(text, &a); err != nil {
			return nil, fmt.Errorf("read the aggregator's answer: %w", err)
		}
		of = a.Partitions
		for _, b := range a.Keys {
			keys = append(keys, b.Key)
		}
	}
	return keys, nil
}
