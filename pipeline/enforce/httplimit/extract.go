package httplimit

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/tallygate/tallygate/pipeline/enforce/gate"
)

// Ambiguous is the value of Header, Cookie and HeaderIP for a request with several values where one must identify it.
// A client could otherwise choose its identity by adding a value before or after the proxy's. A Gate refuses the
// request with 400. No client can send a value equal to Ambiguous.
const Ambiguous = gate.Ambiguous

// Header returns the value of a header field; several are Ambiguous. Make sure that clients cannot
// set it: the proxy in front must remove it from their requests.
func Header(name string) func(*http.Request) string {
	return header(name, func([]string) string { return Ambiguous })
}

// FirstHeader is Header for proxies that put their value first: it returns the first of several.
func FirstHeader(name string) func(*http.Request) string {
	return header(name, func(values []string) string { return values[0] })
}

// LastHeader is Header for proxies that put their value last: it returns the last of several.
func LastHeader(name string) func(*http.Request) string {
	return header(name, func(values []string) string { return values[len(values)-1] })
}

func header(name string, several func([]string) string) func(*http.Request) string {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) string {
		switch values := r.Header[name]; len(values) {
		case 0:
			return ""
		case 1:
			return values[0]
		default:
			return several(values)
		}
	}
}

// Cookie returns the value of a cookie; several different ones are Ambiguous. Clients choose their
// cookies: use only values that your service signs and verifies.
func Cookie(name string) func(*http.Request) string {
	return func(r *http.Request) string {
		value := ""
		for i, c := range r.CookiesNamed(name) {
			if i > 0 && c.Value != value {
				return Ambiguous
			}
			value = c.Value
		}
		return value
	}
}

// ContextValue returns what an earlier middleware put into the request's context under key, such as
// a verified token's subject. It reads strings, integers and fmt.Stringers; other types are absent.
// For a part of a value, such as one claim of a token, use Context.
func ContextValue(key any) func(*http.Request) string {
	return func(r *http.Request) string { return text(r.Context().Value(key)) }
}

// Context applies of to the value in the request's context under key. A value of another type is
// absent.
//
//	UID: httplimit.Context(tokenKey{}, func(t *jwt.Token) string { return t.Subject() })
func Context[V any](key any, of func(V) string) func(*http.Request) string {
	return func(r *http.Request) string {
		v, ok := r.Context().Value(key).(V)
		if !ok {
			return ""
		}
		return of(v)
	}
}

// Constant returns the same value for every request, such as the service's region, for a rule whose
// key has attrs.region.
func Constant(value string) func(*http.Request) string {
	return func(*http.Request) string { return value }
}

// First returns the first value that is not absent.
func First(of ...func(*http.Request) string) func(*http.Request) string {
	return func(r *http.Request) string {
		for _, f := range of {
			if v := f(r); v != "" {
				return v
			}
		}
		return ""
	}
}

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case uint64:
		return strconv.FormatUint(v, 10)
	case fmt.Stringer:
		return v.String()
	}
	return ""
}
