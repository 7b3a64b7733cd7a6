package tallygate

import (
	"cmp"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/samples"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// StatusHandler answers as the decision server's GET /v1/status does: how the Guard is, and with
// ?metrics=PREFIX,… the Guard's metrics. It names no user and no secret, and asks for no credential: serve it
// where operators reach it, and callers do not.
func (g *Guard) StatusHandler() http.Handler {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(&collector{table: g.table, feed: g.feed, emitter: g.emitter, guard: g})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		prefixes, err := samples.Prefixes(r.URL.Query())
		if err != nil {
			httpjson.Problem(w, http.StatusBadRequest, err.Error())
			return
		}
		s := g.status()
		if len(prefixes) > 0 {
			s.Metrics = samples.Gather(metrics, prefixes)
		}
		httpjson.Reply(w, s)
	})
}

func (g *Guard) status() api.Status {
	now, name := time.Now(), cmp.Or(g.name, presence.HostName())
	s := api.Status{
		Component: "enforcer", Instance: name, Version: presence.Version(), Commit: "unknown", Go: runtime.Version(),
		Started: g.started.UTC(), Now: now.UTC(), Uptime: now.Sub(g.started).Seconds(),
		Ready: g.table.Ready(), Config: []api.Setting{}, Errors: []api.LoggedError{},
	}
	e := &api.EnforcerStatus{Entries: g.table.Summary().Entries, Staleness: -1, Stale: g.table.Stale(), Enabled: g.table.Enabled()}
	if s.Enforcer = e; s.Ready {
		e.Staleness = g.table.Staleness().Seconds()
	}
	if cause, since := g.table.Off(); cause != "" {
		e.Enabled, e.OffCause, e.OffSince = false, string(cause), since.UTC()
	}
	feed := g.feed.Stats()
	if out := feed.Outage; out.Err != nil {
		e.Redis = &api.Trouble{Since: out.Since.UTC(), Reason: string(out.Reason), Error: out.Err.Error()}
	}
	switch {
	case feed.Refused != nil:
		s.Why = feed.Refused.Error()
	case !s.Ready:
		s.Why = "the blocklist has not been read yet"
	}
	if feed.LastError != nil {
		at, count := feed.LastErrAt.UTC(), 0
		for _, n := range feed.Errors {
			count += int(n)
		}
		s.Errors = append(s.Errors, api.LoggedError{Level: "error", Message: "following the blocklist is interrupted", Error: feed.LastError.Error(), First: at, Last: at, Count: max(count, 1)})
	}
	return s
}
