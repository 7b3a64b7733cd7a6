package ask

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// ServeGrants answers GET /v1/grants[?uid=42][&limit=…]: the limits and grants by commands of keys that have these
// dimensions. Any instance answers for the whole group.
func (a *keys) ServeGrants(w http.ResponseWriter, r *http.Request) {
	key, limit, err := exemptionsQuery(r.URL.Query())
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	if a.instance.Partitions() == 0 || !a.instance.Online() {
		httpjson.Problem(w, http.StatusServiceUnavailable, "the topics have not been checked yet")
		return
	}
	reply, err := ownAllowances(a.instance.Owned())
	if err != nil {
		httpjson.Problem(w, http.StatusInternalServerError, err.Error())
		return
	}
	if r.Header.Get(forwardedHeader) == "" {
		all := fmt.Sprintf("/v1/grants?limit=%d", maxExemptionsLimit)
		reply.Missing = askRest(r.Context(), a.base, reply.Partitions, all, func(part *api.Allowances) []int32 {
			reply.Grants = append(reply.Grants, part.Grants...)
			reply.Partitions = append(reply.Partitions, part.Partitions...)
			return part.Partitions
		})
	}
	finishAllowances(&reply, key, limit)
	httpjson.Reply(w, reply)
}

// ownAllowances are those in partitions. Each is locked by itself, for as long as its keys with allowances take, which
// the shard keeps a list of.
func ownAllowances(parts []Part) (reply api.Allowances, err error) {
	reply = api.Allowances{Partitions: []int32{}, Grants: []api.Allowance{}}
	for _, p := range parts {
		reply.Partitions = append(reply.Partitions, p.ID())
		p.View(func(s *shard.Shard, _ *owner.Rules) {
			err = errors.Join(err, s.Allowed(func(text string, state []byte) {
				if key, bad := event.ParseKey([]byte(text)); bad == nil { // every key's text was made by AppendKey
					reply.Grants = appendAllowances(reply.Grants, key, state)
				}
			}))
		})
	}
	return reply, err
}

// finishAllowances leaves those of keys that have all dimensions of a key, each once: while partitions move, two
// instances may both answer for one.
func finishAllowances(r *api.Allowances, key []event.Dim, limit int) {
	r.Grants = slices.DeleteFunc(r.Grants, func(g api.Allowance) bool {
		return slices.ContainsFunc(key, func(d event.Dim) bool { return g.Key[d.Name] != d.Value })
	})
	order := func(x, y api.Allowance) int {
		return cmp.Or(cmp.Compare(event.FormatKey(dimsOf(x.Key)), event.FormatKey(dimsOf(y.Key))), cmp.Compare(x.Rule, y.Rule),
			-cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Until, y.Until), cmp.Compare(x.ID, y.ID))
	}
	slices.SortStableFunc(r.Grants, order)
	r.Grants = slices.CompactFunc(r.Grants, func(x, y api.Allowance) bool { return order(x, y) == 0 })
	slices.Sort(r.Partitions)
	r.Partitions = slices.Compact(r.Partitions)
	if n := len(r.Grants); n > limit {
		r.Grants, r.More = r.Grants[:limit], n-limit
	}
}
