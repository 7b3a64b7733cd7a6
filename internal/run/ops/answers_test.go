package ops_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// What each program answers to probes and to who looks for its metrics, byte for byte: testdata/answers.txt. A question is
// METHOD PATH [at LISTENER].
func TestAnswers(t *testing.T) {
	public := func(ready error, but ...error) http.Handler {
		mux := http.NewServeMux()
		wrong := func() error { return errors.Join(but...) }
		ops.Health(mux, func() error { return ready }, wrong)
		ops.Describe(mux, apidocs.Enforcer)
		httpjson.Fallback(mux)
		return mux
	}
	away := errors.New("the blocklist has not been read yet")
	at := map[string]http.Handler{
		"":        public(nil),
		"unready": public(away),
		"but":     public(nil, errors.New("edge-2 has another number of shards")),
		"private": ops.MetricsHandler(ops.NewRegistry("test"), func() error { return away }),
	}
	testrun.Script(t, "testdata/answers.txt", func(question []string) string {
		req, about := testrun.Request(t, question)
		w := httptest.NewRecorder()
		at[about["at"]].ServeHTTP(w, req)
		answer := testrun.Answer(t, w.Result())
		if w.Code == http.StatusOK && (req.URL.Path == "/openapi.json" || req.URL.Path == "/metrics") { // docs/api and the reference have them
			before, _, _ := strings.Cut(answer, "\n{")
			before, _, _ = strings.Cut(before, "\n#")
			return before
		}
		return answer
	})
}
