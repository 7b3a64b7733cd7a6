package conformance

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/gofiber/fiber/v3"
	fiberrecover "github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"

	chiadapter "github.com/tallygate/tallygate/adapters/chi"
	echoadapter "github.com/tallygate/tallygate/adapters/echo"
	fiberadapter "github.com/tallygate/tallygate/adapters/fiber"
	ginadapter "github.com/tallygate/tallygate/adapters/gin"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

const header = "X-User"

// handler is what a service does with POST /send. Its context is that of the request.
type handler func(ctx context.Context, user string) (status int)

// service answers POST /send of a user, with what a proxy says of permits.
type service func(user string, permits ...string) *http.Response

// options are those of permits.
type options struct {
	admit        enforce.Admitter
	permitHeader bool
	events       httplimit.Emitter
}

// adapters build a service whose router recovers from panics, and has the handler behind a middleware
// that asks for permits.
var adapters = map[string]func(*testing.T, *enforce.Table, options, handler) service{
	"chi": func(_ *testing.T, table *enforce.Table, o options, h handler) service {
		router := chi.NewRouter()
		router.Use(chimiddleware.Recoverer, httplimit.Middleware(table, httplimit.Options{
			UID: httplimit.Header(header), API: chiadapter.TemplateAPI(router), Admit: o.admit, Events: o.events, PermitHeader: o.permitHeader,
		}))
		router.Post("/send", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(h(r.Context(), r.Header.Get(header))) })
		return served(router)
	},
	"echo": func(t *testing.T, table *enforce.Table, o options, h handler) service {
		limit, err := echoadapter.Middleware(table, httplimit.Options{UID: httplimit.Header(header), Admit: o.admit, Events: o.events, PermitHeader: o.permitHeader})
		if err != nil {
			t.Fatal(err)
		}
		router := echo.New()
		router.Logger.SetOutput(t.Output())
		router.Use(echomiddleware.Recover(), limit)
		router.POST("/send", func(c echo.Context) error {
			return c.NoContent(h(c.Request().Context(), c.Request().Header.Get(header)))
		})
		return served(router)
	},
	"gin": func(t *testing.T, table *enforce.Table, o options, h handler) service {
		gin.SetMode(gin.TestMode)
		limit, err := ginadapter.Middleware(table, httplimit.Options{UID: httplimit.Header(header), Admit: o.admit, Events: o.events, PermitHeader: o.permitHeader})
		if err != nil {
			t.Fatal(err)
		}
		router := gin.New()
		router.Use(gin.RecoveryWithWriter(t.Output()), limit)
		router.POST("/send", func(c *gin.Context) { c.Status(h(c.Request.Context(), c.GetHeader(header))) })
		return served(router)
	},
	"fiber": func(t *testing.T, table *enforce.Table, o options, h handler) service {
		limit, err := fiberadapter.Middleware(table, fiberadapter.Options{UID: fiberadapter.Header(header), Admit: o.admit, Events: o.events, PermitHeader: o.permitHeader})
		if err != nil {
			t.Fatal(err)
		}
		app := fiber.New()
		app.Use(fiberrecover.New(), limit)
		app.Post("/send", func(c fiber.Ctx) error { return c.SendStatus(h(c.Context(), c.Get(header))) })
		return func(user string, permits ...string) *http.Response {
			resp, err := app.Test(request(user, permits), fiber.TestConfig{Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
	},
}

func request(user string, permits []string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/send", nil)
	r.Header.Set(header, user)
	for _, p := range permits {
		r.Header.Add(event.PermitHeader, p)
	}
	return r
}

func served(h http.Handler) service {
	return func(user string, permits ...string) *http.Response {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(user, permits))
		return w.Result()
	}
}

// onEach runs a test with each adapter, and with no verdicts.
func onEach(t *testing.T, test func(t *testing.T, table *enforce.Table, build func(options, handler) service)) {
	for name, adapter := range adapters {
		t.Run(name, func(t *testing.T) {
			table, err := enforce.NewTable(enforce.Config{})
			if err != nil {
				t.Fatal(err)
			}
			test(t, table, func(o options, h handler) service { return adapter(t, table, o, h) })
		})
	}
}
