package decision

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// Left returns the remainders for a request.
func (s *Server) Left(api string, dims []event.Dim) []enforce.Left {
	return s.cfg.Table.Left(api, dims)
}

// VerdictsAt is whose verdicts concern a request: callers are told the key by Answers.PartitionKey.
func (s *Server) VerdictsAt(at event.Micros, api string, dims []event.Dim) []*verdict.Verdict {
	return s.cfg.Table.VerdictsAt(at, api, dims)
}

// quotas answers with what is known to be left for someone, the least first. A limit of which nothing
// is known is not there.
func (s *Server) quotas(w http.ResponseWriter, r *http.Request) {
	c, err := quotaQuery(r.URL.RawQuery)
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	dims, err := c.dimensions()
	if err == nil && len(dims) == 0 {
		err = errors.New("whose? Name a dimension, such as uid=42")
	}
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	out := api.Quotas{Quotas: []api.Quota{}, Staleness: s.cfg.Table.Staleness().Round(time.Millisecond).String()}
	for _, l := range s.cfg.Table.Left(c.API, dims) {
		name := s.cfg.Answers.NameOf(l.Rule, l.Public)
		if name == "" {
			continue
		}
		out.Quotas = append(out.Quotas, api.Quota{Rule: name, Limit: l.Limit, Left: l.Left(), Count: l.Count, Window: l.Per.Seconds(), Counted: event.FromTime(l.Since), Resets: event.FromTime(l.Until)})
	}
	w.Header().Set("Cache-Control", "no-store")
	httpjson.Reply(w, out)
}

// quotaQuery reads who is asked about from a URL. What it doesn't know is refused: a question about
// "user" would otherwise be about nobody.
func quotaQuery(raw string) (*query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, fmt.Errorf("the query: %w", err)
	}
	c := &query{Attrs: map[string]value{}}
	for name, given := range values {
		if len(given) > 1 {
			return nil, fmt.Errorf("%s is given %d times", name, len(given))
		}
		attr, isAttr := strings.CutPrefix(name, "attrs.")
		switch {
		case name == "uid":
			c.UID = uid(given[0])
		case name == "ip":
			c.IP = given[0]
		case name == "api":
			c.API = given[0]
		case isAttr && attr != "":
			c.Attrs[attr] = value{Kind: event.String, Text: given[0]}
		default:
			return nil, fmt.Errorf("%.40q: want uid, ip, attrs.NAME or api", name)
		}
	}
	return c, nil
}
