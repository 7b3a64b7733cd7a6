package accesslog

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
)

func TestLinesInJSON(t *testing.T) {
	for _, c := range []struct {
		name   string
		format Format
		line   string
		want   string
	}{
		{
			"nginx", JSON,
			`{"id":"6f","time":1795255200.123,"uid":"42","ip":"192.0.2.7","method":"GET","path":"/search?q=1","status":200,"bytes":512,"agent":"curl/8"}`,
			`{"time":"2026-11-21T10:00:00.123Z","uid":"42","api":"get.search","outcome":"success","ip":"192.0.2.7","attrs":{"bytes":512,"status":200,"agent":"curl/8"}}`,
		},
		{
			"Envoy: nobody, and a request that has a name", JSON,
			`{"time":"2026-11-21T10:00:00.123Z","uid":null,"ip":"::ffff:192.0.2.7","api":"search.query","method":"GET","path":"/","status":401,"bytes":0,"agent":null}`,
			`{"time":"2026-11-21T10:00:00.123Z","api":"search.query","outcome":"denied","ip":"192.0.2.7","attrs":{"bytes":0,"status":401}}`,
		},
		{
			"HAProxy: texts, nobody is -, and the client left", JSON,
			`{"time":"1795255200123","uid":"-","ip":"2001:db8::1","method":"HEAD","path":"/%73earch","status":"-1","bytes":"007"}`,
			`{"time":"2026-11-21T10:00:00.123Z","api":"get.search","outcome":"failure","ip":"2001:db8::1","attrs":{"bytes":7}}`,
		},
		{
			"Caddy", "caddy:uid=uid",
			`{"level":"info","ts":1795255200.5,"request":{"remote_ip":"10.0.0.1","client_ip":"192.0.2.7","method":"POST","uri":"/a/b/c","headers":{"User-Agent":["curl/8"]}},"user_id":"","size":12,"status":503,"uid":"42"}`,
			`{"time":"2026-11-21T10:00:00.5Z","uid":"42","api":"post.a.b","outcome":"failure","ip":"192.0.2.7","attrs":{"bytes":12,"status":503,"agent":"curl/8"}}`,
		},
		{
			"Caddy's own user, and a header that is there twice", "caddy:attrs.x=request.headers.X,attrs.n=n,attrs.none=none",
			`{"ts":"21/Nov/2026:10:00:00 +0000","request":{"method":"GET","uri":"/","headers":{"X":["a","b"]}},"user_id":"ann","status":200,"n":7.50}`,
			`{"time":"2026-11-21T10:00:00Z","uid":"ann","api":"get","outcome":"success","attrs":{"status":200,"n":7.5,"x":"a,b"}}`,
		},
		{
			"Traefik, behind another proxy", "traefik:uid=request_X-User",
			`{"ClientHost":"198.51.100.9, 192.0.2.7","ClientUsername":"-","DownstreamStatus":200,"DownstreamContentSize":3,"RequestMethod":"GET","RequestPath":"//search","StartUTC":"2026-11-21T10:00:00.123456789Z","request_X-User":"42"}`,
			`{"time":"2026-11-21T10:00:00.123456Z","uid":"42","api":"get.search","outcome":"success","ip":"192.0.2.7","attrs":{"bytes":3,"status":200}}`,
		},
		{
			"a name with dots", "json:uid=a.b.c",
			`{"time":"2026-11-21T10:00:00Z","a":{"b.c":42},"method":"GET","path":"/","status":200}`,
			`{"time":"2026-11-21T10:00:00Z","uid":"42","api":"get","outcome":"success","attrs":{"status":200}}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			format, err := ParseFormat(string(c.format))
			if err != nil {
				t.Fatal(err)
			}
			events, errs := readAll(t, format, c.line+"\n"+c.line)
			if len(errs) > 0 || len(events) != 2 {
				t.Fatalf("%d events, errors %v", len(events), errs)
			}
			if events[0].ID == events[1].ID || len(events[0].ID) != 32 {
				t.Errorf("the ids of two equal lines: %s, %s", events[0].ID, events[1].ID)
			}
			events[0].ID = ""
			if diff := cmp.Diff(c.want, string(event.AppendJSON(nil, &events[0]))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMalformedLinesInJSON(t *testing.T) {
	const good = `{"time":1,"method":"GET","path":"/","status":200}`
	for _, c := range []struct{ format, line, want string }{
		{"json", `{"time":1`, "expected a JSON object"},
		{"json", `null`, "expected a JSON object"},
		{"json", `[]`, "expected a JSON object"},
		{"json", good + `{}`, "expected one JSON object, and found more behind it"},
		{"caddy", good, `expected the request's method, such as GET, in the field "request.method"`},
		{"json:path=uri", good, `expected the request's path in the field "uri"`},
		{"json", `{"method":"GET","path":"/","status":200}`, `expected a time in RFC 3339, or the seconds, milli-, micro- or nanoseconds since 1970, in the field "time"`},
		{"json", `{"time":"NaN","method":"GET","path":"/","status":200}`, `expected a time in RFC 3339, or the seconds, milli-, micro- or nanoseconds since 1970, in the field "time"`},
		{"json", `{"time":1,"method":"GET","path":"/"}`, `expected the answer's status in the field "status"`},
		{"json:uid=user", `{"time":1,"user":{"id":1},"method":"GET","path":"/","status":200}`, `expected a text, a number, or a list of these in the field "user"`},
		{"", good, "no-api: at byte 0: there is no api: name the action, such as order.create: this looks like the log of a proxy: read it with --format json"},
	} {
		_, errs := readAll(t, Format(c.format), c.line)
		if diff := cmp.Diff([]string{"line 1: " + c.want}, errs); diff != "" {
			t.Errorf("%s of %s: %s", c.line, c.format, diff)
		}
	}
}

func TestChangesOfFormats(t *testing.T) {
	for _, good := range []string{"json", "caddy", "traefik", "json:uid=a,ip=b,attrs.x=c,attrs.x=d"} {
		if f, err := ParseFormat(good); err != nil || string(f) != good {
			t.Errorf("%s: %q, %v", good, f, err)
		}
	}
	for bad, want := range map[string]string{
		"ndjson:uid=a":        `unknown format "ndjson:uid=a": want combined, common, vhost_combined, ndjson, json, caddy or traefik`,
		"json:":               `unknown format "json:": "": want NAME=FIELD, such as json:uid=user`,
		"caddy:uid=":          `unknown format "caddy:uid=": "uid=": want NAME=FIELD, such as caddy:uid=user`,
		"json:user=a":         `unknown format "json:user=a": "user=a": want one of time, uid, ip, api, method, path, status, bytes, agent or attrs.NAME before the =`,
		"json:attrs.status=a": `unknown format "json:attrs.status=a": "attrs.status=a": want one of time, uid, ip, api, method, path, status, bytes, agent or attrs.NAME before the =`,
	} {
		if _, err := ParseFormat(bad); err == nil || err.Error() != want {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// The event of a request has the uid, the address and the API by which the proxy asked for it: the log's
// uid was the address where there was no user, and the question had none.
func TestWhatIsCountedIsWhatIsChecked(t *testing.T) {
	headers := forwardauth.Headers{Method: "X-Original-Method", Path: "X-Original-Uri"}.WithDefaults()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.SampledFrom([]string{"", "42", "a b", strings.Repeat("x", 300), "é\xff"}), rapid.String()).Filter(func(s string) bool { return s != "-" })
		uid := text.Draw(t, "uid")
		ip := rapid.SampledFrom([]string{"", "192.0.2.7", "::ffff:192.0.2.7", "2001:DB8::1", "[2001:db8::1]:80", "192.0.2.7:80", "198.51.100.1, 192.0.2.7", "nobody", "fe80::1%eth0"}).Draw(t, "ip")
		method := rapid.SampledFrom([]string{"GET", "HEAD", "POST", "M-SEARCH", "X_1"}).Draw(t, "method")
		path := "/" + text.Draw(t, "path")
		h := http.Header{"X-Tallygate-Uid": {uid}, "X-Tallygate-Ip": {ip}, "X-Original-Method": {method}, "X-Original-Uri": {path}}
		api, dims, err := headers.Read(h)
		if err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal(map[string]any{"time": 1, "uid": uid, "ip": ip, "method": method, "path": path, "status": 200})
		if err != nil {
			t.Fatal(err)
		}
		l, err := newLayout(JSON)
		if err != nil {
			t.Fatal(err)
		}
		e, err := l.parse(line, &parser{})
		if err != nil {
			t.Fatal(err)
		}
		counted := fmt.Sprintf("%s %q", e.API, e.UID)
		if e.IP.IsValid() {
			counted += " " + e.IP.String()
		}
		asked := map[string]string{}
		for _, d := range dims {
			asked[d.Name] = event.CanonicalDim(d.Name, d.Value)
		}
		checked := fmt.Sprintf("%s %q", api, asked["uid"])
		if asked["ip"] != "" {
			checked += " " + asked["ip"]
		}
		if counted != checked {
			t.Fatalf("%s: counted as %s, checked as %s", line, counted, checked)
		}
	})
}

func FuzzLineInJSON(f *testing.F) {
	f.Add(`{"time":1795255200.123,"uid":"42","ip":"192.0.2.7","method":"GET","path":"/search?q=1","status":200,"bytes":512,"agent":"curl/8"}`)
	f.Add(`{"time":"1e300","api":"a","uid":["a",1,true,null],"method":"","path":"\ud800","status":"000","bytes":-1,"x":{"y":"\u0000"}}`)
	l, err := newLayout("json:attrs.y=x.y")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line string) {
		e, err := l.parse([]byte(line), &parser{})
		if err != nil || e.API == "" || len(e.API) > event.MaxAPI || strings.ContainsFunc(e.API, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return // a name of the line's own may be none; whoever emits it says so
		}
		if err := e.Validate(); err != nil {
			t.Fatalf("%q is no event: %v", line, err)
		}
	})
}
