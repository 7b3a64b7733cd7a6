package decision

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/tallygate/tallygate/pipeline/verdict"
)

const (
	maxPage     = 1000 // verdicts
	defaultPage = 100
)

// list answers what is in force, ordered by record key, a page at a time.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit := defaultPage
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			problem(w, http.StatusBadRequest, fmt.Sprintf("limit=%s: 1 to %d", text, maxPage))
			return
		}
		limit = n
	}
	page, next := s.cfg.Table.List(q.Get("prefix"), q.Get("cursor"), limit)
	if page == nil {
		page = []*verdict.Verdict{}
	}
	reply(w, struct {
		Verdicts []*verdict.Verdict `json:"verdicts"`
		Cursor   string             `json:"cursor,omitempty"` // of the next page
	}{page, next})
}
