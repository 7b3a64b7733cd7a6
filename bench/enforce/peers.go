package main

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/puzpuzpuz/xsync/v4"
	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// peer is one way to know who is blocked.
type peer struct {
	name string
	// blocked asks about each of these users, and returns how many of them are blocked.
	blocked func(uids []string) int
	slow    bool // so much that a few calls are enough
}

const hour = int64(3600 * 1e6)

// newPeers returns all of them, or only the first two, each with these users blocked.
func newPeers(ctx context.Context, uids []string, client *redis.Client, only bool) ([]peer, *enforce.Table, error) {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		return nil, nil, err
	}
	go func() { _ = table.Run(ctx) }()
	table.Replace(0, nil)
	for part := range slices.Chunk(uids, 10_000) {
		table.Apply(0, verdicts(part))
	}
	peers := []peer{
		{name: "bare map", blocked: bareMap(uids)},
		{name: "enforce", blocked: func(uids []string) (n int) {
			for _, uid := range uids {
				if !table.Check("order.create", uid).Allowed {
					n++
				}
			}
			return n
		}},
	}
	if only {
		return peers, table, nil
	}
	peers = append(peers,
		peer{name: "xsync", blocked: xsyncMap(uids)},
		peer{name: "sync.Map", blocked: syncMap(uids)},
		peer{name: "x/time/rate", blocked: rateLimiters(uids)},
		peer{name: "go-limiter", blocked: goLimiter(ctx, uids)},
	)
	if client != nil {
		if err := fillRedis(ctx, client, uids); err != nil {
			return nil, nil, err
		}
		peers = append(peers, peer{name: "Redis EXISTS", slow: true, blocked: func(uids []string) (n int) {
			for _, uid := range uids {
				n += int(client.Exists(ctx, uid).Val())
			}
			return n
		}})
	}
	return peers, table, nil
}

// verdicts blocks each user for an hour.
func verdicts(uids []string) []verdict.Verdict {
	at := event.FromTime(time.Now())
	all := make([]verdict.Verdict, len(uids))
	dims, apis := make([]event.Dim, len(uids)), []string{"order.*"}
	for i, uid := range uids {
		dims[i] = event.Dim{Name: "uid", Value: uid}
		all[i] = verdict.Verdict{
			Rule: "orders", Key: dims[i : i+1 : i+1], Action: verdict.ActBlock, APIs: apis,
			Count: 101 * event.One, Limit: 100 * event.One, Since: at, Until: at + event.Hour, Seq: int64(i),
		}
	}
	return all
}

// bareMap is the least that one can do: no expiry, no APIs, no changes.
func bareMap(uids []string) func([]string) int {
	m := make(map[string]int64, len(uids))
	for _, uid := range uids {
		m[uid] = hour
	}
	return func(uids []string) (n int) {
		for _, uid := range uids {
			if m[uid] > 0 {
				n++
			}
		}
		return n
	}
}

func xsyncMap(uids []string) func([]string) int {
	m := xsync.NewMap[string, int64](xsync.WithPresize(len(uids)))
	for _, uid := range uids {
		m.Store(uid, hour)
	}
	return func(uids []string) (n int) {
		for _, uid := range uids {
			if until, ok := m.Load(uid); ok && until > 0 {
				n++
			}
		}
		return n
	}
}

func syncMap(uids []string) func([]string) int {
	var m sync.Map
	for _, uid := range uids {
		m.Store(uid, hour)
	}
	return func(uids []string) (n int) {
		for _, uid := range uids {
			if until, ok := m.Load(uid); ok && until.(int64) > 0 {
				n++
			}
		}
		return n
	}
}

// rateLimiters is golang.org/x/time/rate with a limiter a user, of which those who are blocked have no token left.
func rateLimiters(uids []string) func([]string) int {
	m := make(map[string]*rate.Limiter, len(uids))
	for _, uid := range uids {
		m[uid] = rate.NewLimiter(rate.Every(time.Hour), 0)
	}
	return func(uids []string) (n int) {
		for _, uid := range uids {
			if l := m[uid]; l != nil && !l.Allow() {
				n++
			}
		}
		return n
	}
}

// goLimiter counts: it makes an entry for whoever asks. So a miss is measured with users who are there after the first time.
func goLimiter(ctx context.Context, uids []string) func([]string) int {
	store, err := memorystore.New(&memorystore.Config{Tokens: 1, Interval: time.Hour, InitialAlloc: len(uids)})
	if err != nil {
		panic(err)
	}
	take := func(s limiter.Store, uid string) bool {
		_, _, _, ok, _ := s.Take(ctx, uid)
		return ok
	}
	for _, uid := range uids {
		take(store, uid)
	}
	return func(uids []string) (n int) {
		for _, uid := range uids {
			if !take(store, uid) {
				n++
			}
		}
		return n
	}
}

func fillRedis(ctx context.Context, client *redis.Client, uids []string) error {
	if err := client.FlushDB(ctx).Err(); err != nil {
		return err
	}
	for i := 0; i < len(uids); i += 10_000 {
		pipe := client.Pipeline()
		for _, uid := range uids[i:min(i+10_000, len(uids))] {
			pipe.Set(ctx, uid, 1, time.Hour)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// names returns n users: their strings lie one behind the other, each in its own memory.
func names(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = prefix + strconv.Itoa(1_000_000_000+i)
	}
	return list
}
