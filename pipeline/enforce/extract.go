package enforce

import (
	"fmt"
	"net/http"
	"strconv"
)

// Ambiguous is what Header, Cookie and HeaderIP return for a request that has several values where one is to say who or what it is: a client
// would choose one of them, by adding it before or behind that of a proxy. A Gate refuses the request with 400. No value that
// a client can send is equal to it.
const Ambiguous = "\x00ambiguous"

// Header returns the value of a header field; several are Ambiguous. Take care that clients cannot set it: the proxy in front removes it
// from what they send.
func Header(name string) func(*http.Request) string {
	return header(name, func([]string) string { return Ambiguous })
}

// FirstHeader is Header where of several values the first is right, since your proxies put theirs in front.
func FirstHeader(name string) func(*http.Request) string {
	return header(name, func(values []string) string { return values[0] })
}

// LastHeader is Header where of several values the last is right, since your proxies put theirs behind.
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

// Cookie returns the value of a cookie; several different ones are Ambiguous. Clients choose theirs, so it is for values that your
// service signed and verified.
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

// ContextValue returns what an earlier middleware has put into the request's context under key: a verified token's subject, the
// session's user. A string, an integer and a fmt.Stringer have a text; anything else is absent. For a claim within a value,
// such as a whole token, use Context.
func ContextValue(key any) func(*http.Request) string {
	return func(r *http.Request) string { return text(r.Context().Value(key)) }
}

// Context returns what of makes of the value in the request's context under key; it is absent when it has another type.
//
//	UID: enforce.Context(tokenKey{}, func(t *jwt.Token) string { return t.Subject() })
func Context[V any](key any, of func(V) string) func(*http.Request) string {
	return func(r *http.Request) string {
		v, ok := r.Context().Value(key).(V)
		if !ok {
			return ""
		}
		return of(v)
	}
}

// Constant is the same for every request: the region a service runs in, for a rule whose key has attrs.region.
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
