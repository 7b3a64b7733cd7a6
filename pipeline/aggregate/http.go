package aggregate

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/tallygate/tallygate/internal/httpjson"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// forwardedHeader marks a request that another instance forwarded. It is not forwarded again, so
// that two instances that disagree about an owner do not ask each other without end.
const forwardedHeader = "X-Tallygate-Forwarded"

// explainReply is the answer to GET /v1/explain.
type explainReply struct {
	Key       map[string]string   `json:"key"`
	Partition int32               `json:"partition"`
	Hot       *keyHeat            `json:"hot,omitempty"` // if it takes much of its partition
	Rules     []rules.Explanation `json:"rules"`
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
	list, err := a.Explain(key, api, now())
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
	reply := explainReply{Key: byName(key), Partition: a.Partition(key), Hot: a.heatOf(key), Rules: list}
	if reply.Rules == nil {
		reply.Rules = []rules.Explanation{}
	}
	httpjson.Reply(w, reply)
}

// explainQuery reads the dimensions of a key, sorted, and the api from a query.
func explainQuery(q url.Values) (key []event.Dim, api string, err error) {
	named := map[string]string{}
	for name, values := range q {
		if name == "api" {
			api = values[0]
			continue
		}
		if !event.IsDim(name) {
			return nil, "", errors.New("unknown parameter " + name + ": dimensions are uid, ip, ip/64 and attrs.NAME, and there is api")
		}
		if len(values) != 1 || values[0] == "" {
			return nil, "", errors.New("dimension " + name + " needs one value")
		}
		named[name] = values[0]
	}
	if len(named) == 0 {
		return nil, "", errors.New("which key? For example: /v1/explain?uid=42")
	}
	key, err = keyOf(named)
	return key, api, err
}

// keyOf returns the key that events with these dimensions count under, sorted by name.
func keyOf(named map[string]string) (key []event.Dim, err error) {
	for _, name := range slices.Sorted(maps.Keys(named)) {
		d, err := event.NewDim(name, named[name])
		if err != nil {
			return nil, err
		}
		key = append(key, d)
	}
	if n := len(event.AppendKey(nil, key)); n > event.MaxKey {
		return nil, fmt.Errorf("the key is too long: its text would have %d bytes, at most %d", n, event.MaxKey)
	}
	return key, nil
}

// forward sends the request to the partition's owner, and passes on its answer.
func (a *api) forward(w http.ResponseWriter, r *http.Request, partition int32, client *http.Client, body []byte) {
	to, err := a.owner(r.Context(), partition)
	if err != nil {
		httpjson.Problem(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	req, err := a.peers.request(r.Context(), r.Method, to, r.URL.Path+"?"+r.URL.RawQuery, body)
	if err != nil {
		httpjson.Problem(w, http.StatusBadGateway, err.Error())
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		httpjson.Problem(w, http.StatusBadGateway, "ask the owner of the key: "+err.Error())
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized { // of this instance, not of the caller
		httpjson.Problem(w, http.StatusServiceUnavailable, "the owner of the key does not know this instance as a member of the group: nothing was done, try again")
		return
	}
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, io.LimitReader(resp.Body, 8<<20)) // the client notices a truncated reply
}

// byName returns a key in the form that JSON has.
func byName(key []event.Dim) map[string]string {
	out := make(map[string]string, len(key))
	for _, d := range key {
		out[d.Name] = d.Value
	}
	return out
}
