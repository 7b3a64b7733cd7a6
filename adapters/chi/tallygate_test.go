package tallygate

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
	"github.com/tallygate/tallygate/verdict"
)

func TestRoutesAreNamed(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	at := event.FromTime(time.Now())
	table.Replace(0, []verdict.Verdict{{
		Rule: "orders-detector", Public: "order", Key: []event.Dim{{Name: "uid", Value: "42"}}, Action: verdict.ActBlock,
		APIs: []string{"get.v1.orders.id"}, Since: at, Until: at + event.Hour,
	}})
	user := httplimit.Header("X-User")
	ok := func(http.ResponseWriter, *http.Request) {}
	router := chi.NewRouter()
	router.Use(middleware.GetHead, httplimit.Middleware(table, httplimit.Options{UID: user, API: TemplateAPI(router)}))
	router.Route("/v1", func(r chi.Router) {
		r.Get("/orders/{id}", ok)
		r.Get("/orders", ok)
	})
	inner := ""
	router.With(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner = httplimit.PatternAPI(r); next.ServeHTTP(w, r) })
	}).Get("/users/{id}", ok)
	for _, c := range []struct {
		method, path, user string
		code               int
	}{
		{"GET", "/v1/orders/7", "42", 429}, {"HEAD", "/v1/orders/7", "42", 429}, {"GET", "/v1/orders/7", "43", 200}, {"HEAD", "/v1/orders/7", "43", 200},
		{"GET", "/v1/orders", "42", 200}, {"GET", "/nothing", "42", 404}, {"GET", "/users/7", "42", 200},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Header.Set("X-User", c.user)
		router.ServeHTTP(w, r)
		if w.Code != c.code {
			t.Errorf("%s %s by %s: %d, want %d", c.method, c.path, c.user, w.Code, c.code)
		}
	}
	for path, want := range map[string]string{"/wp-admin/x.php": httplimit.Unrouted, "/v1/orders/7": "get.v1.orders.id"} {
		if got := TemplateAPI(router)(httptest.NewRequest("GET", path, nil)); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if inner != "get.users.id" {
		t.Errorf("within the router it is %q", inner)
	}
}
