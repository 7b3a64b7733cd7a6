package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/keytext"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/tools/input"
)

const (
	// A batch is a command on so many keys of a partition, that take so many bytes.
	unblockKeys  = 1000
	unblockBytes = 48 << 10

	progressEvery = 5 * time.Second
)

// unblockMany ends the verdicts of a rule, or of any rule, for all keys: it counts the keys, asks, and
// sends the command for batches of them. It reads the pages twice, and so keeps a few of them in memory.
func (k *keyCommand) unblockMany(ctx context.Context) error {
	var count atomic.Int64
	err := k.eachPage(ctx, func(_ context.Context, a *api.Blocked) error {
		count.Add(int64(len(a.Keys)))
		return nil
	})
	n := int(count.Load())
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
		fmt.Fprint(k.stderr, "Unblock them? (y/n) ")
		if err := k.confirmed(ctx); err != nil {
			return err
		}
	}
	var done, found atomic.Int64
	say := input.NewProgressLines(k.stderr, "unblock", int64(n), progressEvery, done.Load)
	err = k.eachPage(ctx, func(ctx context.Context, a *api.Blocked) error {
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

// unblockPage unblocks the keys of a page, in batches that an aggregator accepts.
func (k *keyCommand) unblockPage(ctx context.Context, a *api.Blocked, done *atomic.Int64) error {
	for rest := a.Keys; len(rest) > 0; {
		body, size := k.body, 0
		for _, b := range rest[:min(unblockKeys, len(rest))] {
			for name, value := range b.Key {
				size += len(strconv.Quote(name)) + len(strconv.Quote(value)) + len("{:},")
			}
			if size > unblockBytes && len(body.Keys) > 0 {
				break
			}
			body.Keys = append(body.Keys, b.Key)
		}
		if _, err := k.api.Command(ctx, &body); err != nil {
			return fmt.Errorf("unblock %s, from %s on: %w", plural(len(body.Keys), "key"), keytext.FormatMap(body.Keys[0]), err)
		}
		done.Add(int64(len(body.Keys)))
		rest = rest[len(body.Keys):]
	}
	return nil
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
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return errors.New("nothing was done: answer y, or use --yes")
	case <-ctx.Done():
		fmt.Fprintln(k.stderr)
		return errors.New("nothing was done: interrupted")
	}
}

// eachPage reads the blocked keys of every partition, page by page: several partitions at the same time,
// and so do is called.
func (k *keyCommand) eachPage(ctx context.Context, do func(context.Context, *api.Blocked) error) error {
	first, err := k.page(ctx, 0, "") // it tells how many partitions there are
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(apiclient.AtOnce)
	for partition := range first.Partitions {
		g.Go(func() error {
			a := first
			for after := ""; ; after = a.Next {
				if partition > 0 || after != "" {
					var err error
					if a, err = k.page(ctx, partition, after); err != nil {
						return err
					}
				}
				if err := do(ctx, a); err != nil {
					return err
				}
				if a.Next == "" || a.Next == after {
					return nil
				}
			}
		})
	}
	return g.Wait()
}

// page reads one page of a partition.
func (k *keyCommand) page(ctx context.Context, partition int32, after string) (*api.Blocked, error) {
	q := url.Values{"unblock": {"all"}, "partition": {strconv.Itoa(int(partition))}} // checks the role before the first command
	if k.body.Rule != "" {
		q.Set("rule", k.body.Rule)
	}
	if after != "" {
		q.Set("after", after)
	}
	a, err := k.api.Blocked(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("list the blocked keys of partition %d: %w", partition, err)
	}
	return a, nil
}
