package enforce

import (
	"net/http"
	"strings"

	"github.com/tallygate/tallygate/pipeline/event"
)

// RouteAPI names a request's API by its method and the first two segments of its path, as events made from
// access logs do: GET /Images/ks-logo.gif?x=1 is get.images.ks-logo-gif.
func RouteAPI(r *http.Request) string { return PathAPI(r.Method, r.URL.EscapedPath()) }

// PathAPI is RouteAPI for a method and a path as it was written, percent-encoded, with or without a query.
// Everything is in lower case; what is not a letter or digit of ASCII becomes '-', empty segments are dropped,
// and the whole is cut to 128 bytes.
func PathAPI(method, path string) string {
	path, _, _ = strings.Cut(path, "?")
	name := make([]byte, 0, 64)
	name = append(name, strings.ToLower(method)...)
	left := 2
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" {
			continue
		}
		if left--; left < 0 {
			break
		}
		name = append(name, '.')
		for _, c := range segment {
			switch {
			case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
				name = append(name, byte(c))
			case c >= 'A' && c <= 'Z':
				name = append(name, byte(c)|0x20)
			default:
				name = append(name, '-')
			}
		}
	}
	return string(name[:min(len(name), event.MaxAPI)])
}
