package aggregate

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/tallygate/tallygate/api"
)

// askRest asks the instances that own the partitions other than mine, and returns the partitions that
// nobody answered for. take takes over one answer at a time, and returns the partitions that it is about.
func askRest[T any](ctx context.Context, a *answers, mine []int32, path string, take func(*T) []int32) (missing []api.MissingPartition) {
	answered := slices.Clone(mine)
	why := map[string]error{} // by address
	owners, err := a.owners()
	others := map[string]address{}
	for id, o := range owners {
		if !slices.Contains(mine, id) && o.addr != "" {
			others[o.addr] = o
		}
	}
	var mu sync.Mutex
	var asked sync.WaitGroup
	for addr, o := range others {
		asked.Go(func() {
			var theirs T
			err := a.peers.askInstance(ctx, o, http.MethodGet, path, nil, &theirs)
			mu.Lock()
			defer mu.Unlock()
			if why[addr] = err; err == nil {
				answered = append(answered, take(&theirs)...)
			}
		})
	}
	asked.Wait()
	for id := range a.found.Load().Partitions {
		if slices.Contains(answered, id) {
			continue
		}
		o, ok := owners[id]
		reason := cmp.Or(err, why[o.addr], o.err)
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
