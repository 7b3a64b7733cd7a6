package httplimit

import (
	"net/http"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// leaves is a user's remainder of 100 for a minute.
func leaves(user string, count event.Decimal) verdict.Verdict {
	return block("search-combined", "uid="+user, func(v *verdict.Verdict) {
		v.State, v.Public, v.Count, v.APIs = verdict.Left, "searches", count*event.One, []string{"get.search"}
		v.Since = now()
		v.Until = v.Since + event.Minute
	})
}

// An allowed answer says what is left, and a denied one that nothing is. Of others nothing is known.
func TestAllowedAnswersSayWhatIsLeft(t *testing.T) {
	table := newTable(t)
	table.Replace(0, []verdict.Verdict{leaves("42", 63), leaves("blocked", 100), until("blocked", verdict.ActBlock, time.Hour)})
	table.Heartbeat(0, now())
	named := 0
	o := Options{UID: byHeader, API: func(r *http.Request) string {
		named++
		return RouteAPI(r)
	}}
	h := Middleware(table, o)(ok)
	w := get(h, "42")
	if limit, policy := w.Header().Get("RateLimit"), w.Header().Get("RateLimit-Policy"); w.Code != 200 || limit != `"searches";r=37;t=60` || policy != `"searches";q=100` {
		t.Errorf("%d, RateLimit: %s, RateLimit-Policy: %s", w.Code, limit, policy)
	}
	if named != 1 {
		t.Errorf("the API was named %d times, want once", named)
	}
	if w := get(h, "blocked"); w.Code != 429 || w.Header().Get("RateLimit") != `"limit";r=0;t=3600` {
		t.Errorf("denied: %d, %v", w.Code, w.Header())
	}
	named = 0
	if w := get(h, "nobody"); w.Code != 200 || len(w.Header()["Ratelimit"]) > 0 || named != 0 {
		t.Errorf("of others: %d, %v, the API was named %d times", w.Code, w.Header(), named)
	}
	o.Answers = enforce.Answers{NoRateLimit: true}
	if w := get(Middleware(table, o)(ok), "42"); len(w.Header()["Ratelimit"]) > 0 || named != 0 {
		t.Errorf("where callers are told nothing: %v, the API was named %d times", w.Header(), named)
	}
	o.Answers, o.API = enforce.Answers{}, func(*http.Request) string { return "another" }
	if w := get(Middleware(table, o)(ok), "42"); len(w.Header()["Ratelimit"]) > 0 {
		t.Errorf("another API: %v", w.Header())
	}
	o.API = func(*http.Request) string { return Ambiguous }
	if w := get(Middleware(table, o)(ok), "42"); w.Code != 200 || len(w.Header()["Ratelimit"]) > 0 {
		t.Errorf("an API that nobody knows: %d, %v", w.Code, w.Header())
	}
}
