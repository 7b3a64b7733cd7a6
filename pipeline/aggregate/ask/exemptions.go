package ask

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
)

func exemptionByCommand(e *shard.Exempted) api.Exemption {
	x := api.Exemption{From: api.FromCommand, Until: e.Until, Reason: e.Reason, By: e.By, OnBehalfOf: e.OnBehalfOf}
	if key, err := event.ParseKey([]byte(e.Key)); err == nil { // every key's text was made by AppendKey
		x.Key = byName(key)
	}
	if e.Rule != "" {
		x.Rules = []string{e.Rule}
	}
	return x
}

func exemptionByRules(e *rules.Exemption, names ...string) api.Exemption {
	x := api.Exemption{From: api.FromRules, Key: byName(e.Key), In: e.List, Rules: names, Until: e.Expires, Reason: e.Reason}
	if e.In.IsValid() {
		x.In = e.In.String()
	}
	return x
}

// exemptionsOf are those that hold for a key of an owned partition.
func exemptionsOf(p Part, key []event.Dim) (list []api.Exemption) {
	at := now()
	p.View(func(s *shard.Shard, v *owner.Rules) {
		for _, e := range s.Exempted(key, at) {
			list = append(list, exemptionByCommand(&e))
		}
		known := map[string]bool{} // a rule with several limits has its exemptions once
		for _, l := range v.Set.Limits {
			if known[l.Rule.Name] {
				continue
			}
			known[l.Rule.Name] = true
			for _, e := range l.Exempts(key, at) {
				list = append(list, exemptionByRules(&e, l.Rule.Name))
			}
		}
	})
	return list
}

// concerning are those of list that exempt from a limit.
func concerning(list []api.Exemption, limit string) (out []api.Exemption) {
	for _, e := range list {
		if len(e.Rules) == 0 || slices.Contains(e.Rules, limit) || slices.Contains(e.Rules, ruleOf(limit)) {
			out = append(out, e)
		}
	}
	return out
}

const (
	exemptionsLimit    = 1000
	maxExemptionsLimit = 100_000
)

// ServeExemptions answers GET /v1/exemptions[?uid=42][&limit=…]: those that name these dimensions, by
// commands and by the rule file. Any instance answers for the whole group.
func (a *keys) ServeExemptions(w http.ResponseWriter, r *http.Request) {
	key, limit, err := exemptionsQuery(r.URL.Query())
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	if a.instance.Partitions() == 0 || !a.instance.Online() {
		httpjson.Problem(w, http.StatusServiceUnavailable, "the topics have not been checked yet")
		return
	}
	reply := ownExemptions(a.instance.Owned())
	if r.Header.Get(forwardedHeader) == "" {
		set := a.rules.Current().Set
		for _, e := range set.Exemptions() {
			if e.Expires == event.NoTime || now() < e.Expires {
				reply.Exemptions = append(reply.Exemptions, exemptionByRules(&e.Exemption, e.Rules...))
			}
		}
		all := fmt.Sprintf("/v1/exemptions?limit=%d", maxExemptionsLimit)
		reply.Missing = askRest(r.Context(), a.base, reply.Partitions, all, func(part *api.Exemptions) []int32 {
			reply.Exemptions = append(reply.Exemptions, part.Exemptions...)
			reply.Partitions = append(reply.Partitions, part.Partitions...)
			return part.Partitions
		})
	}
	finishExemptions(&reply, key, limit)
	httpjson.Reply(w, reply)
}

func exemptionsQuery(q url.Values) (key []event.Dim, limit int, err error) {
	limit = exemptionsLimit
	if text := q.Get("limit"); q.Has("limit") {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxExemptionsLimit {
			return nil, 0, fmt.Errorf("limit is %.20q, want 1 to %d", text, maxExemptionsLimit)
		}
		q.Del("limit")
	}
	if len(q) == 0 {
		return nil, limit, nil
	}
	ask, err := explainQuery(q)
	if err == nil && (ask.api != "" || ask.exact || ask.partition != nil) {
		err = errors.New("parameters are a key's dimensions, key.api among them, and limit")
	}
	return ask.key, limit, err
}

// ownExemptions are those by commands in partitions.
func ownExemptions(parts []Part) api.Exemptions {
	reply := api.Exemptions{Partitions: []int32{}, Exemptions: []api.Exemption{}}
	at := now()
	for _, p := range parts {
		reply.Partitions = append(reply.Partitions, p.ID())
		var list []shard.Exempted
		p.View(func(s *shard.Shard, _ *owner.Rules) { list = s.Exempted(nil, at) })
		for i := range list {
			reply.Exemptions = append(reply.Exemptions, exemptionByCommand(&list[i]))
		}
	}
	return reply
}

// finishExemptions leaves those that name all dimensions of a key, commands' first, each once: while partitions
// move, two instances may both answer for one.
func finishExemptions(r *api.Exemptions, key []event.Dim, limit int) {
	type keyed struct {
		api.Exemption
		text string // the key's
	}
	list := make([]keyed, 0, len(r.Exemptions))
	for _, e := range r.Exemptions {
		if !slices.ContainsFunc(key, func(d event.Dim) bool { return e.Key[d.Name] != d.Value }) {
			list = append(list, keyed{e, event.FormatKey(dimsOf(e.Key))})
		}
	}
	order := func(x, y keyed) int {
		return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.text, y.text), cmp.Compare(x.In, y.In),
			cmp.Compare(strings.Join(x.Rules, " "), strings.Join(y.Rules, " ")))
	}
	slices.SortStableFunc(list, order)
	list = slices.CompactFunc(list, func(x, y keyed) bool { return order(x, y) == 0 && x.Until == y.Until })
	r.Exemptions = r.Exemptions[:0]
	for i := range list {
		r.Exemptions = append(r.Exemptions, list[i].Exemption)
	}
	slices.Sort(r.Partitions)
	r.Partitions = slices.Compact(r.Partitions)
	if n := len(r.Exemptions); n > limit {
		r.Exemptions, r.More = r.Exemptions[:limit], n-limit
	}
}

// dimsOf is a key of JSON as it came from another instance, in canonical form.
func dimsOf(key map[string]string) []event.Dim {
	dims := make([]event.Dim, 0, len(key))
	for name, value := range key {
		dims = append(dims, event.Dim{Name: name, Value: value})
	}
	return dims
}
