package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// Proxies' logs with one JSON object per request. Each may be followed by changes of where its fields
// are: "json:uid=user,attrs.tenant=tenant".
const (
	JSON    Format = "json"    // time, uid, ip, method, path (or api), status, bytes, agent
	Caddy   Format = "caddy"   // Caddy's own; the uid is the field user_id
	Traefik Format = "traefik" // Traefik's own; the uid is the field ClientUsername
)

// fieldNames are the fields of a request's line, as changes of a format name them.
var fieldNames = []string{"time", "uid", "ip", "api", "method", "path", "status", "bytes", "agent"}

const attrName = "attrs."

// layouts say by format where a line has each of these. A dot leads into an object.
var layouts = map[Format]map[string]string{
	JSON: {"time": "time", "uid": "uid", "ip": "ip", "api": "api", "method": "method", "path": "path", "status": "status", "bytes": "bytes", "agent": "agent"},
	Caddy: {"time": "ts", "uid": "user_id", "ip": "request.client_ip", "method": "request.method", "path": "request.uri",
		"status": "status", "bytes": "size", "agent": "request.headers.User-Agent"},
	Traefik: {"time": "StartUTC", "uid": "ClientUsername", "ip": "ClientHost", "method": "RequestMethod", "path": "RequestPath",
		"status": "DownstreamStatus", "bytes": "DownstreamContentSize", "agent": "request_User-Agent"},
}

// layout is one of layouts, with changes.
type layout struct {
	at    map[string]string
	attrs []string // names of the further attributes, with attrName; sorted
}

// newLayout returns a format's layout; nil for a format that is no JSON of a proxy.
func newLayout(format Format) (*layout, error) {
	name, changes, changed := strings.Cut(string(format), ":")
	usual, ok := layouts[Format(name)]
	if !ok {
		return nil, nil //nolint:nilnil // the other formats have none
	}
	l := &layout{at: maps.Clone(usual)}
	if !changed {
		return l, nil
	}
	for change := range strings.SplitSeq(changes, ",") {
		field, at, ok := strings.Cut(change, "=")
		attr, isAttr := strings.CutPrefix(field, attrName)
		switch {
		case !ok || at == "":
			return nil, fmt.Errorf("%q: want NAME=FIELD, such as %s:uid=user", change, name)
		case isAttr && slices.Contains([]string{"", "bytes", "status", "agent"}, attr), !isAttr && !slices.Contains(fieldNames, field):
			return nil, fmt.Errorf("%q: want one of %s or attrs.NAME before the =", change, strings.Join(fieldNames, ", "))
		case isAttr && l.at[field] == "":
			l.attrs = append(l.attrs, field)
		}
		l.at[field] = at
	}
	slices.Sort(l.attrs)
	return l, nil
}

// parse turns a line into an event without id. Unlike in the other formats, a request without a user
// has no uid: who asks the decision server names none, either.
func (l *layout) parse(line []byte, p *parser) (event.Event, error) {
	in, err := object(line)
	if err != nil {
		return event.Event{}, err
	}
	r := reading{layout: l, in: in}
	e := event.Event{
		UID: event.CanonicalUID(r.text("uid")), API: r.api(), Time: r.time(), BrokerTime: event.NoTime, Cost: event.One,
	}
	if list := r.text("ip"); list != "" && list != "-" {
		e.IP, _ = p.address(list) // what is none is absent, as in a check
	}
	if e.UID == "-" {
		e.UID = ""
	}
	e.Outcome, e.Attrs = r.answer()
	return e, r.err
}

// object reads a line that is one object.
func object(line []byte) (in map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&in); err != nil || in == nil {
		return nil, errors.New("expected a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("expected one JSON object, and found more behind it")
	}
	return in, nil
}

// reading is a line that is taken apart. It keeps the first mistake.
type reading struct {
	*layout
	in  map[string]any
	err error
}

func (r *reading) fail(field, want string) {
	if r.err == nil {
		r.err = fmt.Errorf("expected %s in the field %q", want, r.at[field])
	}
}

// text is a field's value; "" where there is none.
func (r *reading) text(field string) string {
	text, ok := textOf(find(r.in, r.at[field]))
	if !ok {
		r.fail(field, "a text, a number, or a list of these")
	}
	return text
}

// find looks a field up: by its whole name, else in the objects that its dots lead into.
func find(in map[string]any, path string) any {
	if v, ok := in[path]; ok {
		return v
	}
	for i := range len(path) {
		if path[i] != '.' {
			continue
		}
		if deeper, ok := in[path[:i]].(map[string]any); ok {
			if v := find(deeper, path[i+1:]); v != nil {
				return v
			}
		}
	}
	return nil
}

// textOf is a value as text. Those of a list are joined, as proxies do with the values of a header.
func textOf(v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "", true
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	case []any:
		all := make([]string, len(v))
		for i := range v {
			if _, list := v[i].([]any); list {
				return "", false
			}
			text, ok := textOf(v[i])
			if !ok {
				return "", false
			}
			all[i] = text
		}
		return strings.Join(all, ","), true
	}
	return "", false
}

// api is the line's own name of the request, else the one that its method and path have.
func (r *reading) api() string {
	if r.at["api"] != "" {
		if api := r.text("api"); api != "" {
			return api
		}
	}
	method, path := r.text("method"), r.text("path")
	if method == "" || strings.ContainsAny(method, " \t/") { // a whole request line would be a name for each URL
		r.fail("method", "the request's method, such as GET,")
	}
	if path == "" {
		r.fail("path", "the request's path")
	}
	return httplimit.PathAPI(method, path)
}

func (r *reading) time() event.Micros {
	text := r.text("time")
	for _, layout := range []string{time.RFC3339Nano, logTime} {
		if t, err := time.Parse(layout, text); err == nil {
			return event.FromTime(t)
		}
	}
	const millis = 1e11 // as seconds it is the year 5138, as milliseconds 1973; micro- and nanoseconds likewise
	seconds, err := strconv.ParseFloat(text, 64)
	for range 3 {
		if seconds >= millis {
			seconds /= 1000
		}
	}
	micros := math.Round(seconds * 1e6)
	if err != nil || !(micros >= float64(event.MinTime) && micros <= float64(event.MaxTime)) { // also false for NaN
		r.fail("time", "a time in RFC 3339, or the seconds, milli-, micro- or nanoseconds since 1970,")
		return event.NoTime
	}
	return event.Micros(micros)
}

// answer returns the request's outcome. A proxy whose client left before the answer writes a status such as 0 or -1.
// The app may have done what was asked for, so that counts as a failure.
func (r *reading) answer() (string, []event.Attr) {
	status := r.text("status")
	var attrs []event.Attr
	if size := r.text("bytes"); isDigits(size) && len(size) <= 18 {
		attrs = append(attrs, event.Attr{Name: "bytes", Value: event.Value{Kind: event.Number, Text: shortest(size)}})
	}
	result := event.OutcomeFailure
	switch {
	case len(status) == 3 && isDigits(status) && status[0] != '0':
		code, _ := strconv.Atoi(status) // three digits
		result = event.StatusOutcome(code)
		attrs = append(attrs, event.Attr{Name: "status", Value: event.Value{Kind: event.Number, Text: status}})
	case status == "":
		r.fail("status", "the answer's status")
	}
	if agent := valid(r.text("agent")); agent != "" && agent != "-" {
		attrs = append(attrs, event.Attr{Name: "agent", Value: event.StringValue(cut(agent, maxAgent))})
	}
	for _, field := range r.attrs {
		if v, ok := r.attr(field); ok {
			attrs = append(attrs, event.Attr{Name: strings.TrimPrefix(field, attrName), Value: v})
		}
	}
	return result, attrs
}

// attr is an attribute that a change of the format names.
func (r *reading) attr(field string) (event.Value, bool) {
	text := event.CanonicalText(r.text(field))
	if _, ok := find(r.in, r.at[field]).(json.Number); ok {
		if number, ok := event.CanonicalNumber(text); ok {
			return event.Value{Kind: event.Number, Text: number}, true
		}
	}
	return event.StringValue(text), text != ""
}

// shortest is a number of digits without zeros before it.
func shortest(digits string) string {
	if digits = strings.TrimLeft(digits, "0"); digits == "" {
		return "0"
	}
	return digits
}
