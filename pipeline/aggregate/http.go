package aggregate

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/tallygate/tallygate/internal/httpjson"
	"github.com/tallygate/tallygate/pipeline/event"
)

// explainReply is the answer to GET /v1/explain.
type explainReply struct {
	Key       map[string]string `json:"key"`
	Partition int32             `json:"partition"`
	Hot       *keyHeat          `json:"hot,omitempty"`    // if it takes much of its partition
	Strict    *StrictState      `json:"strict,omitempty"` // if a rule is strict
	Rules     []explained       `json:"rules"`
}

// ServeExplain answers GET /v1/explain?uid=42[&api=…]: from this instance if it owns the key, else
// from the owner.
func (a *api) ServeExplain(w http.ResponseWriter, r *http.Request) {
	key, api, err := explainQuery(r.URL.Query())
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	if a.found.Load() == nil {
		httpjson.Problem(w, http.StatusServiceUnavailable, "the topics have not been checked yet")
		return
	}
	list, strict, err := a.explain(key, api, now())
	switch {
	case errors.Is(err, ErrNotOwner) && r.Header.Get(forwardedHeader) == "":
		a.forward(w, r, a.Partition(key), a.peers.ask, nil)
		return
	case errors.Is(err, ErrNotOwner):
		httpjson.Problem(w, http.StatusServiceUnavailable, "the key's partition is changing its owner: try again")
		return
	case err != nil:
		httpjson.Problem(w, http.StatusInternalServerError, err.Error())
		return
	}
	reply := explainReply{Key: byName(key), Partition: a.Partition(key), Hot: a.heatOf(key)}
	reply.Rules, reply.Strict = a.explainStrict(r.Context(), key, list, strict)
	httpjson.Reply(w, reply)
}

// keyParameter may stand before a dimension's name in a query; before api it must, because api alone says
// which rules to show.
const keyParameter = "key."

// explainQuery reads the dimensions of a key, sorted, and the api from a query.
func explainQuery(q url.Values) (key []event.Dim, api string, err error) {
	named := map[string]string{}
	for name, values := range q {
		if name == "api" {
			api = values[0]
			continue
		}
		dim := strings.TrimPrefix(name, keyParameter)
		if !event.IsDim(dim) {
			return nil, "", errors.New("unknown parameter " + name + ": dimensions are " + event.Dimensions + "; api=… leaves only an API's rules, and key.api=… is the dimension")
		}
		if _, twice := named[dim]; twice || len(values) != 1 || values[0] == "" {
			return nil, "", errors.New("dimension " + dim + " needs one value")
		}
		named[dim] = values[0]
	}
	if len(named) == 0 {
		return nil, "", errors.New("which key? For example: /v1/explain?uid=42")
	}
	key, err = keyOf(named)
	return key, api, err
}
