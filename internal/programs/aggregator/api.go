package aggregator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/api"
	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/access/issuer"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
)

// api is the handler of the HTTP listener, each part for the callers that may use it.
func (a *Program) api(agg *ask.Answers, guard *access.Guard, about *ops.Reporter, again *reloader, letters *resender) http.Handler {
	mux := http.NewServeMux()
	ops.Health(mux, about.Ready, about.But)
	ops.Describe(mux, apidocs.Aggregator)
	let := func(pattern string, least access.Role, serve http.HandlerFunc) {
		mux.Handle(pattern, guard.Require(least, wholeQuery(asActor(serve))))
	}
	let("GET /v1/explain", access.Viewer, agg.ServeExplain)
	let("GET /v1/exemptions", access.Viewer, agg.ServeExemptions)
	let("GET /v1/grants", access.Viewer, agg.ServeGrants)
	let("GET /v1/hot-keys", access.Viewer, agg.ServeHotKeys)
	let("GET /v1/status", access.Viewer, about.ServeHTTP)
	let("GET /v1/cluster", access.Viewer, a.serveCluster(agg, about))
	let("GET /v1/rules", access.Viewer, agg.ServeRules)
	let("GET /v1/rules/versions", access.Viewer, agg.ServeVersions)
	let("GET /v1/rules/distribution", access.Viewer, agg.ServeDistribution)
	let("POST /v1/rules/rollback", access.Admin, agg.ServeRollback)
	let("GET /v1/unmatched", access.Viewer, agg.ServeUnmatched)
	let("GET /v1/whoami", access.Viewer, serveWhoami)
	let("GET /v1/blocked", access.Viewer, func(w http.ResponseWriter, r *http.Request) {
		// The list is for `tallygate unblock` without a key: who may not unblock does not start.
		if r.URL.Query().Has("unblock") {
			if err := access.From(r.Context()).May(access.Admin); err != nil {
				httpjson.Problem(w, http.StatusForbidden, err.Error())
				return
			}
		}
		agg.ServeBlocked(w, r)
	})
	let("POST /v1/reads", access.Viewer, agg.ServeRead)
	let("POST /v1/commands", access.Operator, agg.ServeCommand)
	let("POST /v1/grants", access.Operator, agg.ServeGrant)
	let("POST /v1/dead-letters", access.Admin, letters.serve)
	let("POST /-/reload", access.Admin, again.serve)
	httpjson.Fallback(mux)
	return mux
}

// serveWhoami says whose credential a request has, for programs that ask on behalf of others.
func serveWhoami(w http.ResponseWriter, r *http.Request) {
	id := access.From(r.Context())
	httpjson.Reply(w, api.Whoami{Name: id.Name, Role: id.Role.String(), Credential: cmp.Or(string(id.By), "none")})
}

// wholeQuery refuses a query that cannot be read as a whole: url.Query leaves out what it cannot read, and a filter with a
// slip would be none.
func wholeQuery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
			httpjson.Problem(w, http.StatusBadRequest, "the query: "+err.Error())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// asActor tells the aggregator who the caller is.
func asActor(serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := access.From(r.Context())
		serve(w, r.WithContext(ask.WithActor(r.Context(), ask.Actor{
			Name: id.Name, Role: id.Role.String(),
			May: func(command string) error { return id.May(roleFor(command)) },
		})))
	})
}

// roleFor returns the role that a command needs: one that erases counts for good needs more than
// one that can be reverted.
func roleFor(command string) access.Role {
	if command == "forget" {
		return access.Admin
	}
	return access.Operator
}

// guard restricts who may use the API, or explains why it may not be served as configured.
func (a *Program) guard(agg *ask.Answers) (*access.Guard, error) {
	cfg := a.Access
	cfg.Logger, cfg.Addr = a.Log, a.HTTP.Addr()
	// Other instances use that name.
	cfg.Listen, cfg.Name = cmp.Or(cfg.Listen, cfg.Addr.String()), a.Config.Advertise
	var guard *access.Guard
	cfg.Peer = func(r *http.Request) (access.Identity, bool, error) {
		actor, ok, err := agg.Peer(r)
		if err != nil || !ok {
			return access.Identity{}, false, err
		}
		role, _ := access.ParseRole(actor.Role)
		if actor.Name == "" && guard.Credentials() {
			return access.Identity{}, false, errors.New("the other instance requires no credentials: give all instances the same --tokens")
		}
		return access.Identity{Name: actor.Name, Role: role}, true, nil
	}
	guard, err := access.New(cfg)
	if err == nil {
		err = guard.Exposed()
	}
	if err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	switch {
	case cfg.Open && !access.Loopback(cfg.Addr):
		a.Log.Warn("--open-api: anyone who reaches the API may block, unblock and erase users, without credentials", "listen", cfg.Listen)
	case cfg.Tokens != "" && !a.Config.AdvertiseTLS && !access.Loopback(cfg.Addr):
		a.Log.Warn("the API receives tokens unencrypted; set --tls-cert and --tls-key", "listen", cfg.Listen)
	}
	return guard, nil
}

// serveHTTP makes g serve the API, and the private listener beside it. Answers and readiness are agg's, but in tests
// that ask others.
func (a *Program) serveHTTP(ctx context.Context, g *errgroup.Group, again *reloader, answers *ask.Answers, inGroup func() error) error {
	agg := again.agg
	guard, err := a.guard(answers)
	if err != nil {
		return err
	}
	member := func() error { return cmp.Or(inGroup(), again.file.ready()) }
	if a.PublishOnly { // it joins no group
		member = func() error { return nil }
	}
	ready := func() error { return errors.Join(a.refused(), member()) }
	g.Go(func() error {
		ops.LogReady(ctx, a.Log, ready, a.listening()...)
		return nil
	})
	letters := newResender(ctx, a, agg)
	handler := a.api(answers, guard, a.reporter(agg, again.file, ready), again, letters)
	g.Go(func() error {
		defer letters.wait() // Serve cuts off slow requests without waiting for them
		return ops.Serve(ctx, a.HTTP, handler, ops.Public)
	})
	if a.Metrics != nil {
		g.Go(func() error { return ops.Serve(ctx, a.Metrics, ops.MetricsHandler(a.Registry, ready, agg.Agrees)) })
	}
	return nil
}

// listeners are the options that say where and how the program is reached, and who may use the API.
type listeners struct {
	listen, metrics *string
	connections     *int
	tls             *ops.ServerTLSOptions
	peerCA          *string
	issuer          *issuer.Options
}

func listenOptions(o *ops.Options, c *access.Config) *listeners {
	o.StringVar(&c.Tokens, "tokens", "", "`FILE` that gives roles to tokens and client certificates: a list of {name, role, and one of sha256, certificate, group}; reloaded when it changes")
	o.BoolVar(&c.Open, "open-api", false, "serve the API without credentials beyond loopback: anyone who reaches it may give commands")
	return &listeners{
		listen:      o.String("listen", "127.0.0.1:8081", "HTTP API on `HOST:PORT`: commands, explain, rules, status and others, which /openapi.json describes; /healthz, /readyz"),
		metrics:     o.String("metrics-listen", "127.0.0.1:9091", "Prometheus metrics on `HOST:PORT`, and /healthz, /readyz; keep it private"),
		connections: o.Int("max-connections", 1000, "`number` of connections that --listen keeps open at once; idle ones give way to new ones, further ones wait"),
		peerCA:      o.String("peer-ca", "", "`FILE` with the PEM certificates to trust in requests to other instances over TLS (default: the system's, those of --tls-client-ca, and those in --tls-cert)"),
		tls:         o.ServerTLS(),
		issuer:      issuer.NewOptions(o),
	}
}

// open listens, and configures how to ask other instances, which are served like this one.
func (l *listeners) open(a *Program) error {
	t, err := l.tls.Build(a.Log)
	if *l.connections < 1 {
		err = errors.Join(err, fmt.Errorf("--max-connections %d: want at least 1", *l.connections))
	}
	verifier, wrong := l.issuer.Build()
	if err = errors.Join(err, wrong); err != nil {
		return &ops.UsageError{Err: err}
	}
	a.Access.Verifier = verifier
	if a.HTTP, err = ops.Listen("listen", *l.listen); err != nil {
		return err
	}
	if a.Config.Advertise == "" {
		if a.Config.Advertise, err = advertised(*l.listen, a.HTTP.Addr()); err != nil {
			return err
		}
	}
	a.Access.Listen, a.Access.Certificates = *l.listen, l.tls.AsksClients()
	a.Config.AdvertiseTLS = t != nil
	if t != nil {
		a.Config.PeerTLS = l.tls.Peer(*l.peerCA)
		if err := l.tls.CheckPeer(); err != nil {
			a.Log.Warn("other instances will not answer this one; give it a certificate that is also valid for clients", "error", err)
		}
	}
	a.HTTP = ops.Guard(a.HTTP, *l.connections, t, "h2", "http/1.1")
	a.Metrics, err = ops.Listen("metrics-listen", *l.metrics)
	return err
}
