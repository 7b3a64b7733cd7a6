package tallygate

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"

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
	o := Options{
		UID: Header("X-User"), IP: func(fiber.Ctx) string { return "192.0.2.1" }, API: TemplateAPI, Events: &emitted,
		Attrs: map[string]func(fiber.Ctx) string{"region": func(fiber.Ctx) string { return "eu" }},
	}
	limit, err := Middleware(table, o)
	if err != nil {
		t.Fatal(err)
	}
	app, reached := fiber.New(), 0
	app.Get("/orders/:id", limit, func(c fiber.Ctx) error { reached++; return c.Status(202).SendString("ok") })
	app.Get("/other", limit, func(fiber.Ctx) error { reached++; return fiber.NewError(418) })
	send := func(path, user string) *http.Response {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("X-User", user)
		resp, err := app.Test(r, fiber.TestConfig{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode == 429 {
			var p enforce.Problem
			if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p.Rule != "order" {
				t.Errorf("%+v, %v", p, err)
			}
		}
		return resp
	}
	if resp := send("/orders/7", "42"); resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "3600" || reached != 0 {
		t.Errorf("blocked: %d, %v, reached %d times", resp.StatusCode, resp.Header, reached)
	}
	for _, c := range []struct {
		path, user string
		code       int
		api        string
	}{{"/orders/7", "43", 202, "get.orders.id"}, {"/other", "42", 418, "get.other"}} {
		emitted = nil
		if resp := send(c.path, c.user); resp.StatusCode != c.code {
			t.Errorf("%s by %s: %d, want %d", c.path, c.user, resp.StatusCode, c.code)
		}
		if len(emitted) != 1 || emitted[0].API != c.api || emitted[0].UID != c.user || emitted[0].Outcome != httplimit.OutcomeOf(c.code) || emitted[0].Validate() != nil {
			t.Errorf("%s by %s: %+v", c.path, c.user, emitted)
		}
	}
	o.Skip = func(c fiber.Ctx) bool { return c.Path() == "/healthz/7" }
	if limit, err = Middleware(table, o); err != nil {
		t.Fatal(err)
	}
	emitted, reached = nil, 0
	app.Get("/healthz/:id", limit, func(c fiber.Ctx) error { reached++; return c.SendString("ok") })
	if send("/healthz/7", "42"); len(emitted) != 0 || reached != 1 {
		t.Errorf("what is skipped: %+v, reached %d times", emitted, reached)
	}
	emitted, o.NoteHeader = nil, true
	if limit, err = Middleware(table, o); err != nil {
		t.Fatal(err)
	}
	app.Get("/noted", limit, func(c fiber.Ctx) error {
		enforce.Note(c.Context(), enforce.Cost(2*event.One), enforce.Outcome("failure"))
		c.Set(enforce.NoteHeader, `id="o1", cost=3`)
		return c.SendString("ok")
	})
	if resp := send("/noted", "43"); len(emitted) != 1 || emitted[0].Outcome != "failure" || emitted[0].Cost != 3*event.One || emitted[0].ID != "o1" ||
		resp.Header.Get(enforce.NoteHeader) != "" {
		t.Errorf("%v, %+v", resp.Header, emitted)
	}
	emitted, o.EmitDenied = nil, true
	if limit, err = Middleware(table, o); err != nil {
		t.Fatal(err)
	}
	app.Get("/orders/:id/items", limit)
	table.Apply(0, []verdict.Verdict{{
		Rule: "all", Public: "order", Key: []event.Dim{{Name: "uid", Value: "44"}}, Action: verdict.ActBlock, APIs: []string{"*"}, Since: at, Until: at + event.Hour,
	}})
	if resp := send("/orders/7/items", "44"); resp.StatusCode != 429 || len(emitted) != 1 || emitted[0].Outcome != event.OutcomeLimited || emitted[0].UID != "44" {
		t.Errorf("what is denied here: %d, %+v", resp.StatusCode, emitted)
	}
	r := httptest.NewRequest("GET", "/other", nil)
	r.Header["X-User"] = []string{"43", "42"}
	if resp, err := app.Test(r, fiber.TestConfig{Timeout: time.Minute}); err != nil || resp.Body.Close() != nil || resp.StatusCode != 400 {
		t.Errorf("two users: %v, %v", resp, err)
	}
	if _, err := Middleware(table, Options{}); err == nil {
		t.Error("no error for options that name nobody")
	}
}

// Percent-encoding, once or twice, is no way around a name.
func TestRouteAPIDecodesOnce(t *testing.T) {
	for _, unescape := range []bool{false, true} {
		app, got := fiber.New(fiber.Config{UnescapePath: unescape}), ""
		app.Use(func(c fiber.Ctx) error { got = RouteAPI(c); return nil })
		for path, want := range map[string]string{"/%73earch": "get.search", "/a/%2e%2e/Search?q": "get.search", "/%2573earch": "get.-73earch"} {
			if resp, err := app.Test(httptest.NewRequest("HEAD", path, nil), fiber.TestConfig{Timeout: time.Minute}); err != nil || resp.Body.Close() != nil || got != want {
				t.Errorf("%s with UnescapePath %v is %q, want %q: %v", path, unescape, got, want, err)
			}
		}
	}
}

// A throttled user who opens a thousand requests must not hold a thousand goroutines.
func TestFewRequestsWait(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	limit, err := Middleware(table, Options{UID: func(fiber.Ctx) string { return "42" }, MaxDelay: time.Minute, MaxDelayed: 3})
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	app.Get("/", limit, func(c fiber.Ctx) error { return c.SendStatus(200) })
	at := event.FromTime(time.Now())
	table.Replace(0, []verdict.Verdict{{
		Rule: "r", Key: []event.Dim{{Name: "uid", Value: "42"}}, Action: verdict.ActThrottle, APIs: []string{"*"}, Since: at, Until: at + 3*event.Second,
	}})
	statuses := make(chan int)
	for range 10 {
		go func() {
			resp, err := app.Test(httptest.NewRequest("GET", "/", nil), fiber.TestConfig{Timeout: time.Minute})
			if err != nil {
				t.Error(err)
				statuses <- 0
				return
			}
			_ = resp.Body.Close()
			statuses <- resp.StatusCode
		}()
	}
	count := map[int]int{}
	for range 10 {
		count[<-statuses]++
	}
	if count[200] != 3 || count[429] != 7 {
		t.Errorf("answers %v, want 3 times 200 and 7 times 429", count)
	}
}

func TestAMiddlewareNeedsATable(t *testing.T) {
	if _, err := Middleware(nil, Options{UID: func(fiber.Ctx) string { return "42" }}); err == nil {
		t.Error("no error")
	}
}

func TestAttributesThatTheMiddlewareAddsAreRefused(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"status", "latency_ms"} {
		o := Options{Attrs: map[string]func(fiber.Ctx) string{name: func(fiber.Ctx) string { return "x" }}}
		if _, err := Middleware(table, o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A service whose authentication did not come first never denied anybody, and nothing said so.
func TestRequestsWithoutAUserAreTold(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	limit, err := Middleware(table, Options{UID: Header("X-User"), IP: func(fiber.Ctx) string { return "192.0.2.1" }, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	app.Get("/orders", limit, func(c fiber.Ctx) error { return c.SendString("ok") })
	for range 30 {
		resp, err := app.Test(httptest.NewRequest("GET", "/orders", nil), fiber.TestConfig{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	if n := strings.Count(log.String(), "none of the first requests had a uid, so"); n != 1 {
		t.Errorf("it is told %d times:\n%s", n, log.String())
	}
}
