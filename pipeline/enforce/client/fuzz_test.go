package client

import (
	"net/http"
	"testing"
)

// Whatever a service says, a wait is none or lies ahead.
func FuzzRetryAfter(f *testing.F) {
	for _, said := range []string{"7", "-1", "4294967296", "Sat, 21 Nov 2026 10:00:00 GMT", "Sat, 21 Nov 9999 10:00:00 GMT", "soon", ""} {
		f.Add(said)
	}
	f.Fuzz(func(t *testing.T, said string) {
		resp := &http.Response{Header: http.Header{"Retry-After": {said}}}
		if wait, ok := retryAfter(resp); wait < 0 || !ok && wait != 0 {
			t.Errorf("%q is %v, %v", said, wait, ok)
		}
	})
}
