package ask

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
)

// ServeExplain answers GET /v1/explain?uid=42[&api=…][&exact=true][&limit=…]: from this instance if it owns
// the key, else from the owner. What it says of keys that contain a key without a uid comes from all owners.
func (a *keys) ServeExplain(w http.ResponseWriter, r *http.Request) {
	ask, err := explainQuery(r.URL.Query())
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	partitions := a.instance.Partitions()
	if partitions == 0 {
		httpjson.Problem(w, http.StatusServiceUnavailable, "the topics have not been checked yet")
		return
	}
	ask.passedOn = r.Header.Get(forwardedHeader) != ""
	var reply api.Explained
	if ask.partition != nil {
		if *ask.partition < 0 || *ask.partition >= partitions {
			httpjson.Problem(w, http.StatusBadRequest, fmt.Sprintf("which partition? 0 to %d", partitions-1))
			return
		}
		reply, err = a.explainPart(r.Context(), *ask.partition, &ask)
		reply.Key, reply.Partition, reply.Rules = byName(ask.key), *ask.partition, []api.ExplainedRule{}
	} else {
		reply, err = a.explainKey(r.Context(), ask.key, ask.api)
	}
	everywhere := ask.partition == nil && !ask.exact && !hasUID(ask.key) && !ask.passedOn
	switch {
	case errors.Is(err, ErrNotOwner) && everywhere:
		reply, err = askOwner[api.Explained](r.Context(), a.base, a.home(ask.key), http.MethodGet, r.URL.Path+"?exact=true&"+r.URL.RawQuery, nil)
		if err != nil {
			httpjson.Problem(w, http.StatusServiceUnavailable, err.Error())
			return
		}
	case errors.Is(err, ErrNotOwner) && !ask.passedOn:
		a.forward(w, r, a.home(ask.key), a.peers.ask, nil)
		return
	case errors.Is(err, ErrNotOwner):
		httpjson.Problem(w, http.StatusServiceUnavailable, "the key's partition is changing its owner: try again")
		return
	case err != nil:
		httpjson.Problem(w, http.StatusInternalServerError, err.Error())
		return
	}
	if everywhere || hasUID(ask.key) && !ask.exact && ask.partition == nil {
		a.explainOthers(r.Context(), &ask, &reply)
	}
	httpjson.Reply(w, reply)
}

// keyParameter may stand before a dimension's name in a query; before api it must, because api alone says
// which rules to show.
const keyParameter = "key."

// explainQuery reads what a query asks for: a key, its dimensions sorted, and of it what.
func explainQuery(q url.Values) (ask explainAsk, err error) {
	ask.limit = explainedKeys
	named := map[string]string{}
	for name, values := range q {
		known, err := ask.option(name, values[0])
		if err != nil {
			return ask, err
		}
		if known {
			continue
		}
		dim := strings.TrimPrefix(name, keyParameter)
		if !event.IsDim(dim) {
			return ask, errors.New("unknown parameter " + name + ": dimensions are " + event.Dimensions +
				"; api=… leaves only an API's rules, and key.api=… is the dimension")
		}
		if _, twice := named[dim]; twice || len(values) != 1 || values[0] == "" {
			return ask, errors.New("dimension " + dim + " needs one value")
		}
		named[dim] = values[0]
	}
	switch {
	case len(named) == 0 && ask.key == nil:
		return ask, errors.New("which key? For example: /v1/explain?uid=42")
	case len(named) > 0 && ask.key != nil:
		return ask, errors.New("key=… has all dimensions: leave out the others")
	case ask.key == nil:
		ask.key, err = keyOf(named)
	}
	return ask, err
}

// option reads a parameter that is no dimension.
func (q *explainAsk) option(name, value string) (known bool, err error) {
	switch name {
	case "api":
		q.api = value
	case "key":
		q.key, err = keyOfText(value)
	case "exact":
		if q.exact, err = strconv.ParseBool(value); err != nil {
			err = fmt.Errorf("exact is %.20q, want true or false", value)
		}
	case "limit":
		if q.limit, err = strconv.Atoi(value); err != nil || q.limit < 0 || q.limit > maxExplainedKeys {
			err = fmt.Errorf("limit is %.20q, want 0 to %d", value, maxExplainedKeys)
		}
	case "partition":
		id, parseErr := strconv.ParseInt(value, 10, 32)
		if parseErr != nil {
			return true, fmt.Errorf("partition is %.20q, want a number", value)
		}
		q.partition = new(int32)
		*q.partition = int32(id)
	default:
		return false, nil
	}
	return true, err
}
