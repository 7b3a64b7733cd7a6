package tallygate

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
	"github.com/tallygate/tallygate/verdict"
)

type events []event.Event

func (e *events) Emit(ev event.Event) bool { *e = append(*e, ev); return true }

func TestMiddleware(t *testing.T) {
	gin.SetMode(gin.TestMode)
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	at := event.FromTime(time.Now())
	table.Replace(0, []verdict.Verdict{{
		Rule: "orders-detector", Public: "order", Key: []event.Dim{{Name: "uid", Value: "42"}}, Action: verdict.ActBlock,
		APIs: []string{"get.orders.id"}, Since: at, Until: at + event.Hour,
	}})
	var emitted events
	limit, err := Middleware(table, httplimit.Options{UID: Value("user"), Events: &emitted})
	if err != nil {
		t.Fatal(err)
	}
	router, reached := gin.New(), 0
	router.Use(func(c *gin.Context) { c.Set("user", c.GetHeader("X-User")) }, limit)
	router.GET("/orders/:id", func(c *gin.Context) { reached++; c.String(http.StatusAccepted, "ok") })
	router.GET("/other", func(c *gin.Context) { reached++; c.Status(http.StatusTeapot); c.Writer.WriteHeaderNow() })
	send := func(path, user string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("X-User", user)
		router.ServeHTTP(w, r)
		return w
	}
	if w := send("/orders/7", "42"); w.Code != 429 || w.Header().Get("Retry-After") != "3600" || reached != 0 {
		t.Errorf("blocked: %d, %v, reached %d times", w.Code, w.Header(), reached)
	}
	for _, c := range []struct {
		path, user string
		code       int
		api        string
	}{{"/orders/7", "43", 202, "get.orders.id"}, {"/other", "42", 418, "get.other"}} {
		emitted = nil
		if w := send(c.path, c.user); w.Code != c.code {
			t.Errorf("%s by %s: %d, want %d", c.path, c.user, w.Code, c.code)
		}
		if len(emitted) != 1 || emitted[0].API != c.api || emitted[0].UID != c.user || emitted[0].Outcome != httplimit.OutcomeOf(c.code) {
			t.Errorf("%s by %s: %+v", c.path, c.user, emitted)
		}
	}
	emitted = nil
	if w := send("/wp-admin/x.php", "42"); w.Code != 404 || len(emitted) != 1 || emitted[0].API != httplimit.Unrouted {
		t.Errorf("what no route takes: %d, %+v", w.Code, emitted)
	}
	emitted = nil
	if limit, err = Middleware(table, httplimit.Options{UID: Value("user"), Events: &emitted, NoteHeader: true}); err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{"/body": "ok", "/none": ""} {
		router.GET("/noted"+path, limit, func(c *gin.Context) {
			enforce.Note(c.Request.Context(), enforce.Outcome("failure"), enforce.Cost(2*event.One))
			c.Header(enforce.NoteHeader, `id="o1", cost=3`)
			if c.Status(http.StatusAccepted); body != "" {
				_, _ = c.Writer.WriteString(body)
			}
		})
		emitted = nil
		w := send("/noted"+path, "43")
		if len(emitted) != 2 || emitted[0].Outcome != "failure" || emitted[0].Cost != 3*event.One || emitted[0].ID != "o1" || w.Header().Get(enforce.NoteHeader) != "" || w.Code != 202 {
			t.Errorf("%s: %d, %v, %+v", path, w.Code, w.Header(), emitted)
		}
	}
	if _, err := Middleware(table, httplimit.Options{}); err == nil {
		t.Error("no error for options that name nobody")
	}
}
