package enforce

import (
	"fmt"
	"net/http"
	"strconv"
)

// Header returns the value of a header field. Take care that clients cannot set it: the proxy in front removes it from
// what they send.
func Header(name string) func(*http.Request) string {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) string {
		if values := r.Header[name]; len(values) > 0 {
			return values[0]
		}
		return ""
	}
}

// Cookie returns the value of a cookie. Clients choose theirs, so it is for values that your service signed and verified.
func Cookie(name string) func(*http.Request) string {
	return func(r *http.Request) string {
		c, err := r.Cookie(name)
		if err != nil {
			return ""
		}
		return c.Value
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
