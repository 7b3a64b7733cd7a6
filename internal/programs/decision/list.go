package decision

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/verdict"
)

const (
	maxPage     = 1000 // verdicts
	defaultPage = 100

	maxLists   = 2               // pages made at once: each walks the whole table
	listWithin = 5 * time.Second // a page that cannot start by then is refused
)

// lister serves the blocklist to those who may see it: everything in force, and so who is blocked.
func (s *Server) lister() http.Handler {
	list := http.Handler(http.HandlerFunc(s.list))
	if s.cfg.Guard != nil {
		list = s.cfg.Guard.Require(access.Viewer, list)
	}
	return list
}

// list answers with what is in force, ordered by record key, one page at a time.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, "the query: "+err.Error())
		return
	}
	for name, given := range q {
		if name != "prefix" && name != "cursor" && name != "limit" || len(given) != 1 {
			httpjson.Problem(w, http.StatusBadRequest, fmt.Sprintf("unknown parameter %.50q, or given twice: there are prefix, cursor and limit", name))
			return
		}
	}
	limit := defaultPage
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			httpjson.Problem(w, http.StatusBadRequest, fmt.Sprintf("limit=%s: 1 to %d", text, maxPage))
			return
		}
		limit = n
	}
	patience := time.NewTimer(listWithin)
	defer patience.Stop()
	select {
	case s.lists <- struct{}{}:
		defer func() { <-s.lists }()
	case <-r.Context().Done():
		return
	case <-patience.C:
		w.Header().Set("Retry-After", "5")
		httpjson.Problem(w, http.StatusServiceUnavailable, fmt.Sprintf("%d pages are being made already; ask again later", maxLists))
		return
	}
	page, next := s.cfg.Table.List(q.Get("prefix"), q.Get("cursor"), limit)
	if page == nil {
		page = []*verdict.Verdict{}
	}
	httpjson.Reply(w, api.VerdictPage{Verdicts: page, Cursor: next})
}
