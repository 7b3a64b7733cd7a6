package aggregate

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/httpjson"
	"github.com/tallygate/tallygate/pipeline/event"
)

const (
	defaultHotKeys = 20
	maxHotKeys     = 1000
)

// ServeHotKeys answers GET /v1/hot-keys[?limit=] with the rate of every partition and the hottest
// keys. Any instance answers for the whole group.
func (a *answers) ServeHotKeys(w http.ResponseWriter, r *http.Request) {
	limit, err := hotLimit(r)
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	if a.found.Load() == nil {
		httpjson.Problem(w, http.StatusServiceUnavailable, "the topics have not been checked yet")
		return
	}
	reply := a.ownHeat()
	if r.Header.Get(forwardedHeader) == "" {
		a.askOthers(r.Context(), &reply)
	}
	finishHotKeys(&reply, limit)
	httpjson.Reply(w, reply)
}

func hotLimit(r *http.Request) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return defaultHotKeys, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxHotKeys {
		return 0, fmt.Errorf("limit is %.20q, want 1 to %d", text, maxHotKeys)
	}
	return n, nil
}

// ownHeat is the part of the answer about this instance's own partitions.
func (a *answers) ownHeat() api.HotKeys {
	var reply api.HotKeys
	for _, h := range a.heats(now(), shownShare) {
		reply.Partitions = append(reply.Partitions, api.PartitionLoad{Partition: h.partition, Owner: cmp.Or(a.cfg.Advertise, a.name()), EventsPerSecond: round(h.rate, 10)})
		for _, k := range h.keys {
			if round(k.Rate, 10) == 0 { // it had events once
				continue
			}
			dims, err := event.ParseKey(k.Text)
			if err != nil {
				continue // every key's text was made by AppendKey
			}
			key := api.HotKey{Key: byName(dims), Partition: h.partition, Heat: api.Heat{Share: round(k.Share, 1000), EventsPerSecond: round(k.Rate, 10)}}
			reply.Keys = append(reply.Keys, key)
		}
	}
	return reply
}

// askOthers adds the answers of the other instances, and the partitions without an answer.
func (a *answers) askOthers(ctx context.Context, reply *api.HotKeys) {
	var mine []int32
	for _, p := range reply.Partitions {
		mine = append(mine, p.Partition)
	}
	reply.Missing = askRest(ctx, a, mine, fmt.Sprintf("/v1/hot-keys?limit=%d", maxHotKeys), func(part *api.HotKeys) (theirs []int32) {
		reply.Partitions = append(reply.Partitions, part.Partitions...)
		reply.Keys = append(reply.Keys, part.Keys...)
		for _, p := range part.Partitions {
			theirs = append(theirs, p.Partition)
		}
		return theirs
	})
}

// finishHotKeys sorts and truncates a reply, and sets the partitions' shares. While partitions move, two
// instances may both answer for one.
func finishHotKeys(r *api.HotKeys, limit int) {
	slices.SortStableFunc(r.Partitions, func(x, y api.PartitionLoad) int {
		return cmp.Or(cmp.Compare(x.Partition, y.Partition), cmp.Compare(y.EventsPerSecond, x.EventsPerSecond))
	})
	r.Partitions = slices.CompactFunc(r.Partitions, func(x, y api.PartitionLoad) bool { return x.Partition == y.Partition })
	var sum float64
	for _, p := range r.Partitions {
		sum += p.EventsPerSecond
	}
	for i := range r.Partitions {
		if sum > 0 {
			r.Partitions[i].Share = round(r.Partitions[i].EventsPerSecond/sum, 1000)
		}
	}
	slices.SortStableFunc(r.Keys, func(x, y api.HotKey) int { return cmp.Compare(y.EventsPerSecond, x.EventsPerSecond) })
	r.Keys = r.Keys[:min(limit, len(r.Keys))]
	if r.Partitions == nil {
		r.Partitions = []api.PartitionLoad{}
	}
	if r.Keys == nil {
		r.Keys = []api.HotKey{}
	}
}

// heatOf is what a key takes of its partition, if that is much; else nil.
func (a *answers) heatOf(key []event.Dim) *api.Heat {
	p := a.partition(a.Partition(key))
	if p == nil || !p.Opened() {
		return nil
	}
	text := event.FormatKey(key)
	for _, k := range heatOf(p, now(), shownShare).keys {
		if string(k.Text) == text && round(k.Rate, 10) > 0 {
			return &api.Heat{Share: round(k.Share, 1000), EventsPerSecond: round(k.Rate, 10)}
		}
	}
	return nil
}
