package aggregator

import (
	"net/http"
	"net/url"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/run/samples"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
	"github.com/tallygate/tallygate/pipeline/blocklist"
)

// reporter answers GET /v1/status.
func (a *Program) reporter(agg *aggregate.Aggregator, file *fileState, ready func() error) *ops.Reporter {
	r := ops.NewReporter("aggregator")
	r.Instance, r.Address = a.Config.InstanceID, a.Config.Advertise
	r.Ready, r.But, r.Settings, r.Log = ready, agg.Agrees, a.Settings, a.Log
	if a.Registry != nil {
		r.Registry = a.Registry
	}
	r.Fill = func(s *api.Status) {
		about := agg.Status()
		about.Differs = agg.Differences()
		if wrong := file.wrong(); wrong != nil {
			about.Rules.FileOK, about.Rules.FileError = false, wrong.Error()
		}
		if since, why := a.Kafka.Refused(); why != nil {
			about.Kafka = &api.Trouble{Since: since.UTC(), Reason: "auth", Error: why.Error()}
		}
		about.Redis = a.redisTrouble()
		s.Aggregator = &about
	}
	return r
}

// redisTrouble describes the failure of Redis; nil if all is well, or there is none.
func (a *Program) redisTrouble() *api.Trouble {
	if a.Redis == nil {
		return nil
	}
	var met blocklist.Outage
	if pub := a.publishes.Load(); pub != nil {
		met = pub.Stats().Redis
	}
	return a.RedisAccess.Trouble(met)
}

// serveCluster answers GET /v1/cluster.
func (a *Program) serveCluster(agg *ask.Answers, about *ops.Reporter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if a.PublishOnly {
			httpjson.Problem(w, http.StatusNotImplemented, "this program was started with --publish-only, and is in no group: ask an aggregator that counts")
			return
		}
		prefixes, err := samples.Prefixes(r.URL.Query())
		if err != nil {
			httpjson.Problem(w, http.StatusBadRequest, err.Error())
			return
		}
		path := "/v1/status"
		if len(prefixes) > 0 {
			path += "?metrics=" + url.QueryEscape(r.URL.Query().Get("metrics"))
		}
		httpjson.Reply(w, agg.Cluster(r.Context(), about.Status(r.Context(), prefixes), path))
	}
}
