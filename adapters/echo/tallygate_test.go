package tallygate

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
	"github.com/tallygate/tallygate/verdict"
)

type events []event.Event

func (e *events) Emit(ev event.Event) bool { *e = append(*e, ev); return true }

func TestMiddleware(t *testing.T) {
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
	router, reached := echo.New(), 0
	router.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { c.Set("user", c.Request().Header.Get("X-User")); return next(c) }
	}, limit)
	router.GET("/orders/:id", func(c echo.Context) error { reached++; return c.String(http.StatusAccepted, "ok") })
	router.GET("/other", func(echo.Context) error { reached++; return echo.NewHTTPError(http.StatusTeapot) })
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
	before := echo.New() // its middleware comes before routing
	before.Pre(limit)
	before.GET("/orders/:id", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
	for path, want := range map[string]string{"/orders/7": "get.orders.7", "/wp-admin/x.php": httplimit.Unrouted} {
		emitted = nil
		before.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
		if len(emitted) != 1 || emitted[0].API != want {
			t.Errorf("before routing, %s: %+v", path, emitted)
		}
	}
	if limit, err = Middleware(table, httplimit.Options{UID: Value("user"), Events: &emitted, NoteHeader: true}); err != nil {
		t.Fatal(err)
	}
	router.GET("/noted", func(c echo.Context) error {
		enforce.Note(c.Request().Context(), enforce.Outcome("failure"), enforce.Cost(2*event.One))
		c.Response().Header().Set(enforce.NoteHeader, `id="o1", cost=3`)
		return c.NoContent(http.StatusAccepted)
	}, limit)
	emitted = nil
	if w := send("/noted", "43"); len(emitted) != 2 || emitted[0].Outcome != "failure" || emitted[0].Cost != 3*event.One || emitted[0].ID != "o1" ||
		w.Header().Get(enforce.NoteHeader) != "" || w.Code != 202 {
		t.Errorf("%d, %v, %+v", w.Code, w.Header(), emitted)
	}
	if _, err := Middleware(table, httplimit.Options{}); err == nil {
		t.Error("no error for options that name nobody")
	}
}
