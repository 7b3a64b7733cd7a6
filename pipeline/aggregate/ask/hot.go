package ask

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/pipeline/aggregate/hotkeys"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

const (
	defaultHotKeys = 20
	maxHotKeys     = 1000
)

// shownShare is the share of a partition from which a key is shown on request, and looked at for the log.
const shownShare = 0.005

// Heat is the recent load of one partition.
type Heat struct {
	Partition int32
	Rate      float64       // per second; an event counts once per key
	Keys      []hotkeys.Key // with much of it, the hottest first
}

// heatOf reads a partition's sketch.
func heatOf(p Part, at event.Micros) (h Heat) {
	p.View(func(s *shard.Shard, _ *owner.Rules) {
		hot := s.Hot()
		hot.Tick(at)
		h = Heat{p.ID(), hot.Rate(at), hot.Hot(at, shownShare)}
	})
	return h
}

// Heats reads the sketches of partitions.
func Heats(parts []Part, at event.Micros) []Heat {
	list := make([]Heat, len(parts))
	for i, p := range parts {
		list[i] = heatOf(p, at)
	}
	return list
}

// Round rounds a number for display to a multiple of 1/parts.
func Round(f, parts float64) float64 { return float64(int64(f*parts+0.5)) / parts }

// ServeHotKeys answers GET /v1/hot-keys[?limit=] with the rate of every partition and the hottest
// keys. Any instance answers for the whole group.
func (a *keys) ServeHotKeys(w http.ResponseWriter, r *http.Request) {
	limit, err := hotLimit(r)
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	if a.instance.Partitions() == 0 {
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
	n, err := numbers(r.URL.Query(), map[string]bounds{"limit": {1, maxHotKeys}})
	return int(cmp.Or(n["limit"], defaultHotKeys)), err
}

// ownHeat is the part of the answer about this instance's own partitions.
func (a *keys) ownHeat() api.HotKeys {
	var reply api.HotKeys
	for _, h := range Heats(a.instance.Owned(), now()) {
		load := api.PartitionLoad{Partition: h.Partition, Owner: cmp.Or(a.advertise, a.name), EventsPerSecond: Round(h.Rate, 10)}
		reply.Partitions = append(reply.Partitions, load)
		for _, k := range h.Keys {
			if Round(k.Rate, 10) == 0 { // it had events once
				continue
			}
			dims, err := event.ParseKey(k.Text)
			if err != nil {
				continue // every key's text was made by AppendKey
			}
			key := api.HotKey{Key: byName(dims), Partition: h.Partition, Heat: api.Heat{Share: Round(k.Share, 1000), EventsPerSecond: Round(k.Rate, 10)}}
			reply.Keys = append(reply.Keys, key)
		}
	}
	return reply
}

// askOthers adds the answers of the other instances, and the partitions without an answer.
func (a *keys) askOthers(ctx context.Context, reply *api.HotKeys) {
	var mine []int32
	for _, p := range reply.Partitions {
		mine = append(mine, p.Partition)
	}
	reply.Missing = askRest(ctx, a.base, mine, fmt.Sprintf("/v1/hot-keys?limit=%d", maxHotKeys), func(part *api.HotKeys) (theirs []int32) {
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
			r.Partitions[i].Share = Round(r.Partitions[i].EventsPerSecond/sum, 1000)
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

// heatOf returns the heat of a key that takes much of its partition; else nil.
func (a *keys) heatOf(key []event.Dim) *api.Heat {
	p := a.instance.Part(a.home(key))
	if p == nil {
		return nil
	}
	text := event.FormatKey(key)
	for _, k := range heatOf(p, now()).Keys {
		if string(k.Text) == text && Round(k.Rate, 10) > 0 {
			return &api.Heat{Share: Round(k.Share, 1000), EventsPerSecond: Round(k.Rate, 10)}
		}
	}
	return nil
}
