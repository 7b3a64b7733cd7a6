package httplimit

import (
	"net/http"
	"strings"

	"github.com/tallygate/tallygate/event"
)

// RouteAPI names a request's API by its method and the first two segments of its path: GET
// /Images/ks-logo.gif?x=1 is get.images.ks-logo-gif. It is PathAPI, from the path that net/http has
// decoded.
func RouteAPI(r *http.Request) string {
	path := r.URL.Path
	if raw, _, fragment := strings.Cut(r.URL.RawPath, "#"); fragment && r.URL.Path == percentDecoded(r.URL.RawPath) {
		path = percentDecoded(raw) // net/http keeps a bare '#' in the path; most servers do not
	}
	return apiOf(r.Method, path)
}

// PathAPI names an API by a method and a request's target as the client wrote it: a percent-encoded
// path, with or without a query, or a whole URL. All spellings of one path have one name, made in
// this order:
//
//   - a leading scheme and host, and everything from ? or # on, are dropped; the target of CONNECT
//     has no path;
//   - percent-encoded bytes are decoded once; a % that encodes nothing stays;
//   - the path is split at each /, encoded ones included, and each segment is cut at its first ';';
//   - empty segments and '.' are dropped, and '..' removes the segment before it;
//   - HEAD is GET, and so is an empty method.
//
// The name is the method and the first two segments, joined by dots, in lower case. Other
// characters than ASCII letters and digits become '-', and the whole is cut to 128 bytes.
//
// Events made from access logs are named by the same function, so counts and checks agree. A router
// that reads paths differently may reach another handler; net/http's does not resolve an encoded
// '..'. MuxAPI and PatternAPI name the handler that is reached.
func PathAPI(method, target string) string {
	path := targetPath(target)
	if path != "" && path[0] != '/' && strings.EqualFold(method, http.MethodConnect) {
		path = ""
	}
	return apiOf(method, percentDecoded(path))
}

// targetPath returns the path of a request's target. RFC 9112 has four forms of a target: a path, a
// URL, HOST:PORT and *.
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

// percentDecoded undoes percent-encoding once. A path without any is returned as it is, without an
// allocation.
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

// apiOf names a method and a decoded path.
func apiOf(method, path string) string {
	var kept [2]string // the first two segments; later ones are only counted, as '..' may follow
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

// appendMethod folds HEAD into GET: both ask for the same resource.
func appendMethod(name []byte, method string) []byte {
	if method == "" || strings.EqualFold(method, http.MethodHead) {
		method = http.MethodGet
	}
	return appendSegment(name, method)
}

// appendSegment appends text in a name's alphabet, one byte per character, up to a name's greatest
// length.
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

// appendByte appends c unless the name has its greatest length.
func appendByte(name []byte, c byte) []byte {
	if len(name) == event.MaxAPI {
		return name
	}
	return append(name, c)
}
