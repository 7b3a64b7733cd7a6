package enforce

import (
	"net/http"

	"github.com/tallygate/tallygate/pipeline/event"
)

// Options says how a request tells who does what. At least one of UID, IP and Attrs is required: there is no
// default that would not be a guess, and a header that a client can set is not who it is.
type Options struct {
	// UID returns the user, after your authentication; "" is nobody.
	UID func(*http.Request) string
	// IP returns the client's address, without a port; "" is unknown.
	IP func(*http.Request) string
	// Attrs returns attributes by their names, for rules whose key has attrs.NAME; "" is absent.
	Attrs map[string]func(*http.Request) string
	// API names what the request does, as events do: order.create. Nil is RouteAPI. It is called only
	// for those who have a verdict.
	API func(*http.Request) string
	// Denied answers a request that is denied; nil is WriteDenied.
	Denied func(http.ResponseWriter, *http.Request, Decision)
	// FailClosed answers 503 until the table is ready. By default requests pass, since a service that
	// starts while Redis is away should not be down as well.
	FailClosed bool
}

type middleware struct {
	table   *Table
	options Options
	attrs   []attr
}

type attr struct {
	dim string
	of  func(*http.Request) string
}

// Middleware lets requests through to the next handler unless a verdict denies them. It panics when the
// options name nobody, since that is a mistake in the program: such a service would never deny anything.
func Middleware(table *Table, options Options) func(http.Handler) http.Handler {
	if options.UID == nil && options.IP == nil && len(options.Attrs) == 0 {
		panic("enforce: Middleware needs at least one of Options.UID, IP and Attrs")
	}
	if options.API == nil {
		options.API = RouteAPI
	}
	if options.Denied == nil {
		options.Denied = WriteDenied
	}
	m := &middleware{table: table, options: options}
	for name, of := range options.Attrs {
		m.attrs = append(m.attrs, attr{"attrs." + name, of})
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if d, ok := m.check(r); !ok {
				options.Denied(w, r, d)
			} else if options.FailClosed && !table.Ready() {
				writeNotReady(w, r)
			} else {
				next.ServeHTTP(w, r)
			}
		})
	}
}

// check reports whether the request may pass; d is why not. Nearly all requests come from those who have
// no verdict, and for them the API need not be known.
func (m *middleware) check(r *http.Request) (d Decision, ok bool) {
	var space [8]event.Dim
	dims := space[:0]
	if m.options.UID != nil {
		dims = appendDim(dims, dimUID, m.options.UID(r))
	}
	if m.options.IP != nil {
		dims = appendDim(dims, dimIP, m.options.IP(r))
	}
	for _, a := range m.attrs {
		dims = appendDim(dims, a.dim, a.of(r))
	}
	if !m.table.known(dims) {
		return Decision{}, true
	}
	// By the system's clock: few come here, and the table's own stands still on a machine too busy to run it.
	d = m.table.CheckDimsAt(now(), m.options.API(r), dims)
	return d, d.Allowed
}

func appendDim(dims []event.Dim, name, value string) []event.Dim {
	if value == "" {
		return dims
	}
	return append(dims, event.Dim{Name: name, Value: value})
}
