package ask

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/api"
)

// partsAtOnce bounds the partitions that are asked at the same time. Instances are few, and are all asked at once.
const partsAtOnce, allAtOnce = 16, -1

// scatter asks each of to, so many at once, and returns when all have answered. take gets one answer at a time.
func scatter[Q, A any](to []Q, atOnce int, ask func(Q) (A, error), take func(Q, A, error)) {
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, q := range to {
		g.Go(func() error {
			answer, err := ask(q)
			mu.Lock()
			defer mu.Unlock()
			take(q, answer, err)
			return nil
		})
	}
	_ = g.Wait() // take has the errors
}

// every returns the ids of all partitions.
func (a *base) every() []int32 {
	all := make([]int32, a.instance.Partitions())
	for id := range all {
		all[id] = int32(id)
	}
	return all
}

// askRest asks for what has no partition of its own, such as a list of all keys of a kind: an answer of one instance is
// about its partitions, and all answers together are about the group's. It asks those that own the partitions other
// than mine, and returns the partitions that nobody answered for. take takes over an answer, and returns the partitions
// that it is about.
func askRest[T any](ctx context.Context, a *base, mine []int32, path string, take func(*T) []int32) (missing []api.MissingPartition) {
	answered := slices.Clone(mine)
	why := map[string]error{} // by address
	owners, err := a.group.Owners()
	var others []Address
	for id, o := range owners {
		if !slices.Contains(mine, id) && o.Addr != "" && !slices.Contains(others, o) {
			others = append(others, o)
		}
	}
	scatter(others, allAtOnce, func(o Address) (T, error) {
		return askInstance[T](ctx, a.peers, o, http.MethodGet, path, nil)
	}, func(o Address, theirs T, err error) {
		if why[o.Addr] = err; err == nil {
			answered = append(answered, take(&theirs)...)
		}
	})
	for _, id := range a.every() {
		if slices.Contains(answered, id) {
			continue
		}
		o, ok := owners[id]
		reason := cmp.Or(err, why[o.Addr], o.Err)
		switch {
		case reason != nil:
		case !ok:
			reason = errors.New("it has no owner at the moment")
		default:
			reason = errors.New("it is changing its owner")
		}
		missing = append(missing, api.MissingPartition{Partition: id, Reason: reason.Error()})
	}
	return missing
}
