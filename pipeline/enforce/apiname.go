package enforce

import (
	"net/http"
	"strings"

	"github.com/tallygate/tallygate/pipeline/event"
)

// RouteAPI names a request's API by its method and the first two segments of its path: GET /Images/ks-logo.gif?x=1 is
// get.images.ks-logo-gif. It is PathAPI, from the path that net/http has decoded.
func RouteAPI(r *http.Request) string {
	path := r.URL.Path
	if raw, _, fragment := strings.Cut(r.URL.RawPath, "#"); fragment && r.URL.Path == percentDecoded(r.URL.RawPath) {
		path = percentDecoded(raw) // net/http takes a '#' that nobody encoded for one of the path, most servers do not
	}
	return apiOf(r.Method, path)
}

// PathAPI names an API by a method and a request's target as the client wrote it: a path, percent-encoded, with or without a query, or
// a whole URL. All ways of writing one path have one name, in this order:
//
//   - a scheme and a host in front, and what follows ? or #, are dropped; the target of CONNECT has no path;
//   - percent-encoded bytes are decoded, once; a % that encodes nothing stays;
//   - the path is split at each /, also at one that was encoded, and each segment is cut at its first ';';
//   - segments that are empty or '.' are dropped, and '..' takes the one before it away;
//   - HEAD is GET, and so is no method at all.
//
// The name is the method and the first two segments, with dots in between, in lower case. What is not a letter or digit of ASCII
// becomes '-', and the whole is cut to 128 bytes.
//
// Names of events made from access logs are made by the same function, so that what is counted is what is checked. A router that
// reads a path otherwise (net/http's does not resolve an encoded '..') may reach another handler: MuxAPI and PatternAPI name that one.
func PathAPI(method, target string) string {
	path := targetPath(target)
	if path != "" && path[0] != '/' && strings.EqualFold(method, http.MethodConnect) {
		path = ""
	}
	return apiOf(method, percentDecoded(path))
}

// targetPath is what of a request's target is its path. RFC 9112 has four forms of a target: a path, a URL, HOST:PORT and *.
func targetPath(target string) string {
	if i := strings.IndexAny(target, "?#"); i >= 0 {
		target = target[:i]
	}
	if target == "" || target[0] == '/' {
		return target
	}
	scheme, rest, ok := strings.Cut(target, ":")
	if !ok || strings.ContainsAny(scheme, "/%") || rest != "" && rest[0] != '/' {
		return target
	}
	if host, ok := strings.CutPrefix(rest, "//"); ok {
		_, path, _ := strings.Cut(host, "/")
		return path
	}
	return rest
}

// percentDecoded undoes percent-encoding, once. Without any it is the path itself, and nothing is allocated.
func percentDecoded(path string) string {
	first := strings.IndexByte(path, '%')
	if first < 0 {
		return path
	}
	out := append(make([]byte, 0, len(path)), path[:first]...)
	for i := first; i < len(path); i++ {
		c := path[i]
		if c == '%' && i+2 < len(path) {
			if hi, lo := unhex(path[i+1]), unhex(path[i+2]); hi >= 0 && lo >= 0 {
				c = byte(hi<<4 | lo)
				i += 2
			}
		}
		out = append(out, c)
	}
	return string(out)
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// apiOf makes the name of a method and a decoded path.
func apiOf(method, path string) string {
	var kept [2]string // the first two segments; those behind them are counted only, since '..' may come
	depth := 0
	for segment := range strings.SplitSeq(path, "/") {
		if i := strings.IndexByte(segment, ';'); i >= 0 {
			segment = segment[:i]
		}
		switch segment {
		case "", ".":
		case "..":
			depth = max(depth-1, 0)
		default:
			if depth < len(kept) {
				kept[depth] = segment
			}
			depth++
		}
	}
	var space [event.MaxAPI]byte
	name := appendMethod(space[:0], method)
	for _, segment := range kept[:min(depth, len(kept))] {
		name = appendSegment(appendByte(name, '.'), segment)
	}
	return string(name)
}

// appendMethod folds HEAD into GET: it asks for the same, without the body.
func appendMethod(name []byte, method string) []byte {
	if method == "" || strings.EqualFold(method, http.MethodHead) {
		method = http.MethodGet
	}
	return appendSegment(name, method)
}

// appendSegment appends text as names have it, a byte for each character, up to the length that a name may have.
func appendSegment(name []byte, text string) []byte {
	for _, c := range text {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			name = appendByte(name, byte(c))
		case c >= 'A' && c <= 'Z':
			name = appendByte(name, byte(c)|0x20)
		default:
			name = appendByte(name, '-')
		}
		if len(name) == event.MaxAPI {
			break
		}
	}
	return name
}

// appendByte keeps to the length that a name may have.
func appendByte(name []byte, c byte) []byte {
	if len(name) == event.MaxAPI {
		return name
	}
	return append(name, c)
}
