package ask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/httpjson"
)

const (
	defaultVersions = 100
	maxVersions     = 1000
)

// history answers what is asked about all versions of the rules, and rolls back to one of them.
type history struct{ *base }

// ServeRules answers GET /v1/rules[?version=7]: the version that this instance runs, as it was published, or
// another one. All instances run the same version, but for moments.
func (a *history) ServeRules(w http.ResponseWriter, r *http.Request) {
	if !a.shared(w) {
		return
	}
	n, err := numbers(r.URL.Query(), map[string]bounds{"version": {1, 1 << 53}})
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	running := a.rules.Running()
	version, given := n["version"]
	switch {
	case running == nil || !a.instance.Online():
		httpjson.Problem(w, http.StatusServiceUnavailable, "the group's rules have not been read yet: try again")
		return
	case !given || version == running.Version:
		httpjson.Reply(w, running)
		return
	}
	old, err := a.rules.Version(r.Context(), version)
	if err != nil {
		a.refuse(w, err)
		return
	}
	httpjson.Reply(w, old)
}

// ServeVersions answers GET /v1/rules/versions[?limit=100][&before=V].
func (a *history) ServeVersions(w http.ResponseWriter, r *http.Request) {
	if !a.shared(w) {
		return
	}
	n, err := numbers(r.URL.Query(), map[string]bounds{"limit": {1, maxVersions}, "before": {1, 1 << 53}})
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	limit, given := n["limit"]
	if !given {
		limit = defaultVersions
	}
	if !a.instance.Online() {
		a.refuse(w, ErrNotConnected)
		return
	}
	all, more, err := a.rules.Versions(r.Context(), n["before"], int(limit))
	if err != nil {
		a.refuse(w, err)
		return
	}
	if all == nil {
		all = []api.RuleVersion{}
	}
	httpjson.Reply(w, api.RuleVersions{Versions: all, More: more})
}

func checkRollback(r *api.Rollback) error {
	switch {
	case r.Version < 1:
		return errors.New("which version? One of GET /v1/rules/versions")
	case strings.TrimSpace(r.Reason) == "":
		return errors.New("why? A roll back needs a reason, for the audit")
	}
	return checkTexts(map[string]string{"by": r.By, "on_behalf_of": r.OnBehalfOf, "reason": r.Reason})
}

// ServeRollback answers POST /v1/rules/rollback.
func (a *history) ServeRollback(w http.ResponseWriter, r *http.Request) {
	if !a.shared(w) {
		return
	}
	var req api.Rollback
	err := readJSON(w, r, &req)
	if err == nil {
		err = checkRollback(&req)
	}
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	actor := ActorOf(r.Context())
	req.By, req.OnBehalfOf = actor.Who(req.By, req.OnBehalfOf)
	ctx, cancel := context.WithTimeout(r.Context(), commandWithin)
	defer cancel()
	done, err := a.rules.Rollback(ctx, req)
	if err != nil {
		a.refuse(w, err)
		return
	}
	httpjson.Reply(w, done)
}

// shared reports whether the rules have versions; else it answers.
func (a *history) shared(w http.ResponseWriter) bool {
	if !a.rules.Shared() {
		httpjson.Problem(w, http.StatusNotFound, "the rules of this instance are of no file")
	}
	return a.rules.Shared()
}

// refuse answers with what went wrong.
func (a *history) refuse(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable
	switch {
	case errors.Is(err, ErrNoVersion):
		status = http.StatusNotFound
	case errors.Is(err, ErrRunning):
		status = http.StatusConflict
	case errors.Is(err, ErrRules):
		status = http.StatusUnprocessableEntity
	}
	httpjson.Problem(w, status, err.Error())
}

// bounds are those of a number.
type bounds struct{ least, most int64 }

// numbers reads parameters that are numbers, and refuses all others.
func numbers(q url.Values, want map[string]bounds) (map[string]int64, error) {
	found := map[string]int64{}
	for name, values := range q {
		b, known := want[name]
		if !known || len(values) != 1 {
			return nil, fmt.Errorf("unknown parameter %.50q, or given twice", name)
		}
		n, err := strconv.ParseInt(values[0], 10, 64)
		if err != nil || n < b.least || n > b.most {
			return nil, fmt.Errorf("%s is %.20q, want %d to %d", name, values[0], b.least, b.most)
		}
		found[name] = n
	}
	return found, nil
}

// readJSON reads a small body that is one object, without unknown fields.
func readJSON(w http.ResponseWriter, r *http.Request, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCommandBody))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("read the body: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("read the body: something follows its object")
	}
	return nil
}

const (
	maxNameText   = 256 // bytes of by and on_behalf_of
	maxReasonText = 4 << 10
)

// checkTexts bounds what callers state for the audit.
func checkTexts(all map[string]string) error {
	for name, text := range all {
		most := maxNameText
		if name == "reason" {
			most = maxReasonText
		}
		if len(text) > most {
			return fmt.Errorf("%s has %d bytes, at most %d", name, len(text), most)
		}
	}
	return nil
}
