package admit

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

func TestBehindAMiddleware(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.rules(1, `    - {name: daily, match: {api: post.send}, limit: 3, per: 1h, public: sends, strict: true}
    - {name: tumbling, match: {api: post.send}, limit: 9, per: 1d, window: tumbling, strict: true}
`)
		a := r.admitter()
		table, err := enforce.NewTable(enforce.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var events sent
		mux := http.NewServeMux()
		fails := false
		mux.HandleFunc("POST /send", func(w http.ResponseWriter, _ *http.Request) {
			if fails {
				panic(http.ErrAbortHandler)
			}
		})
		h := httplimit.Middleware(table, httplimit.Options{UID: httplimit.Header("X-User"), Admit: a, Events: &events})(mux)
		ask := func(path string) (w *httptest.ResponseRecorder) {
			w = httptest.NewRecorder()
			q := httptest.NewRequest("POST", path, nil)
			q.Header.Set("X-User", "42")
			defer func() { _ = recover() }()
			h.ServeHTTP(w, q)
			return w
		}
		for i := range 3 {
			fails = i == 1 // nobody knows what it did: its permit stays
			w := ask("/send")
			if got, want := w.Header().Get("RateLimit"), fmt.Sprintf(`"sends";r=%d;t=3600`, 2-i); w.Code != 200 || got != want {
				t.Errorf("%d: %d, %s, want %s", i, w.Code, got, want)
			}
		}
		w := ask("/send")
		if w.Code != 429 || w.Header().Get("Retry-After") == "" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		if len(events) != 3 || events[1].Outcome != "failure" || events[1].Permit.ID == "" || events[0].Permit.ID == "" || events[0].Permit.At == 0 || events[0].UID != "42" {
			t.Errorf("%+v", events)
		}
	})
}
