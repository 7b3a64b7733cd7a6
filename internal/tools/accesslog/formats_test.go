package accesslog

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

const request = ` - - [17/May/2015:10:05:03 +0000] "GET /search HTTP/1.1" 200 1 "-" "x"`

// Lines of Debian's vhost_combined, with a list of addresses in front or with ports, became events of one
// user "- -", or of a user per connection, and nothing was said.
func TestNoLineOfAnotherFormatIsAPlausibleEvent(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{`-` + request, errAddress.Error()},
		{`unix:` + request, errAddress.Error()},
		{`shop.example:443` + request, errAddress.Error()},
		{`203.0.113.9, nobody` + request, errAddress.Error()},
		{`203.0.113.9,` + request, "expected"},
		{`crawler.example.com - frank [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 404 0`, errAddress.Error()},
		{`Nov 27 00:33:00 lb haproxy[7]: 192.0.2.1:33317 [27/Nov/2026:00:33:00.655] in app/s1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET /a HTTP/1.1"`, "HAProxy's own format"},
		{`192.0.2.1:33317 [27/Nov/2026:00:33:00.655] in app/s1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET /a HTTP/1.1"`, "HAProxy's own format"},
		{`[2026-11-27T00:33:00.310Z] "POST /a HTTP/2" 204 - 154 0 226 100 "192.0.2.1" "x" "id" "host" "tcp://10.0.2.1:80"`, "Envoy's own format"},
		{`https 2026-11-27T00:33:00.186641Z app/lb/50dc6c495c0c9188 192.0.2.1:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://a.example:443/ HTTP/1.1" "x"`, "AWS load balancer"},
		{`2026-11-27T00:33:00.186641Z lb 192.0.2.1:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET http://a.example:80/ HTTP/1.1" "x" - -`, "AWS load balancer"},
		{"#Version: 1.0", "W3C extended"},
		{"#Fields: date time x-edge-location sc-bytes c-ip", "W3C extended"},
		{"2026-11-27\t00:33:00\tLAX1\t392\t192.0.2.1\tGET\td.example\t/a\t200", "W3C extended"},
		{"2026-11-27 00:33:00 10.0.0.1 GET /a - 443 - 192.0.2.1 x 200 0 0 1", "W3C extended"},
		{strings.Repeat("79a5", 16) + ` bucket [27/Nov/2026:00:33:00 +0000] 192.0.2.1 - ID REST.GET.OBJECT k "GET /k HTTP/1.1" 200 - 7 7 4 - "-" "x"`, "Amazon S3"},
		{`1286536309.586    921 192.0.2.1 TCP_MISS/200 507 POST http://a.example/ - DIRECT/10.0.0.1 text/html`, "Squid"},
		{`2026/11/27 00:33:00 [error] 7#7: *1 open() failed, client: 192.0.2.1`, "an error log"},
		{`[Fri Nov 27 00:33:00 2026] [error] [client 192.0.2.1] File does not exist`, "an error log"},
		{`Nov 27 00:33:00 web nginx: 192.0.2.1` + request, "syslog"},
		{`<190>Nov 27 00:33:00 web nginx: 192.0.2.1` + request, "syslog"},
		{`<190>1 2026-11-27T00:33:00Z web nginx - - - 192.0.2.1` + request, "syslog"},
		{`{"start_time":"2026-11-27T00:33:00.310Z","method":"GET","path":"/a","response_code":200}`, "--format json:time=start_time,status=response_code"},
		{`{"ClientIP":"192.0.2.1","ClientRequestMethod":"GET","ClientRequestURI":"/a","EdgeResponseStatus":200}`, "Cloudflare"},
		{`{"ip":"192.0.2.1","requestTime":"28/Mar/2026:09:28:48 +0000","httpMethod":"GET","resourcePath":"/a","status":"200"}`, "Amazon API Gateway"},
		{`{"timeStamp":"2026-03-28T09:28:48+00:00","properties":{"clientIP":"192.0.2.1","httpMethod":"GET"}}`, "Azure"},
		{`{"timestamp":"2026-03-28T09:28:48Z","httpRequest":{"remoteIp":"192.0.2.1"}}`, "Google"},
		{`{"request":{"client_ip":"192.0.2.1","method":"GET"},"ts":1774690128.5,"status":200}`, "--format caddy"},
	} {
		events, errs := readAll(t, Auto, c.line)
		if len(events) > 0 || len(errs) != 1 || !strings.Contains(errs[0], c.want) {
			t.Errorf("%s\n %d events, %q, want %q", c.line, len(events), errs, c.want)
		}
	}
}

// Each of the formats that is advised for reads its lines.
func TestAdvisedFormats(t *testing.T) {
	for line, want := range map[string]string{
		`{"start_time":"2026-11-27T00:33:00.310Z","method":"GET","path":"/a?id=1","response_code":200,"bytes_sent":178,"x_forwarded_for":"203.0.113.9,10.0.0.3"}`:              "203.0.113.9 get.a success",
		`{"ClientIP":"192.0.2.1","ClientRequestMethod":"GET","ClientRequestURI":"/a?q=1","EdgeResponseStatus":404,"EdgeStartTimestamp":1774690128123456789}`:                   "192.0.2.1 get.a failure",
		`{"ClientIP":"192.0.2.1","ClientRequestMethod":"GET","ClientRequestURI":"/a?q=1","EdgeResponseStatus":200,"EdgeStartTimestamp":"2026-03-28T09:28:48Z"}`:                "192.0.2.1 get.a success",
		`{"ip":"192.0.2.1","requestTime":"28/Mar/2026:09:28:48 +0000","httpMethod":"GET","resourcePath":"/a","status":"200"}`:                                                  "192.0.2.1 get.a success",
		`{"timeStamp":"2026-03-28T09:28:48+00:00","properties":{"clientIP":"192.0.2.1","clientPort":1,"httpMethod":"GET","requestUri":"/a","httpStatus":429,"sentBytes":553}}`: "192.0.2.1 get.a limited",
		`{"timestamp":"2026-03-28T09:28:48Z","httpRequest":{"remoteIp":"192.0.2.1","requestMethod":"GET","requestUrl":"https://a.example/a","status":200,"responseSize":"5"}}`: "192.0.2.1 get.a success",
		`{"request":{"client_ip":"192.0.2.1","method":"GET","uri":"/a"},"ts":1774690128.5,"status":200,"size":1}`:                                                              "192.0.2.1 get.a success",
		`{"StartUTC":"2026-03-28T09:28:48Z","ClientHost":"192.0.2.1","RequestMethod":"GET","RequestPath":"/a","DownstreamStatus":200}`:                                         "192.0.2.1 get.a success",
	} {
		_, errs := readAll(t, NDJSON, line)
		_, format, found := strings.Cut(strings.Join(errs, ""), "--format ")
		if !found {
			t.Fatalf("%s: no advice in %q", line, errs)
		}
		r := Lines{Format: Format(format), Proxies: httplimit.NewProxies(netip.MustParsePrefix("10.0.0.0/8"))}.Reader(strings.NewReader(line))
		e, _, err := r.Next()
		if got := fmt.Sprint(e.IP, " ", e.API, " ", e.Outcome); err != nil || got != want {
			t.Errorf("%s by %s: %s, %v, want %s", line, format, got, err, want)
		}
	}
}

// A whole request line as the method gave a name to each URL.
func TestAMethodIsNoRequestLine(t *testing.T) {
	_, errs := readAll(t, JSON, `{"time":1774690128,"method":"GET /a?id=7 HTTP/1.1","path":"/a","status":200}`)
	if len(errs) != 1 || !strings.Contains(errs[0], "expected the request's method") {
		t.Errorf("%q", errs)
	}
}

// What is counted is what an enforcer with the same option checks.
func TestTrustedProxies(t *testing.T) {
	lines := Lines{Proxies: httplimit.NewProxies(netip.MustParsePrefix("10.0.0.0/8"))}
	for client, want := range map[string]string{
		"203.0.113.9, 10.0.0.3":              "203.0.113.9",
		"198.51.100.7, 203.0.113.9:80":       "203.0.113.9",
		"198.51.100.7, 203.0.113.9,10.0.0.3": "203.0.113.9",
		"10.0.0.3":                           errProxies.Error(),
		"203.0.113.9, nobody, 10.0.0.3":      errAddress.Error(),
	} {
		e, _, err := lines.Reader(strings.NewReader(client + request)).Next()
		if got := e.UID; err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want %s", client, got, err, want)
		}
	}
	lines.Format = JSON
	line := `{"time":1774690128,"method":"GET","path":"/a","status":200,"ip":"203.0.113.9, 10.0.0.3"}`
	if e, _, err := lines.Reader(strings.NewReader(line)).Next(); err != nil || e.IP != netip.MustParseAddr("203.0.113.9") {
		t.Errorf("%v, %v", e.IP, err)
	}
}

func TestALogOfOneClientIsTold(t *testing.T) {
	warnings := func(lines int, line func(i int) string) (all []string) {
		var in strings.Builder
		for i := range lines {
			in.WriteString(line(i) + "\n")
		}
		r := Lines{Warn: func(text string) { all = append(all, text) }}.Reader(strings.NewReader(in.String()))
		for {
			if _, _, err := r.Next(); err != nil {
				return all
			}
		}
	}
	one := func(int) string { return "192.0.2.1" + request }
	if got := warnings(300, one); len(got) != 1 || !strings.Contains(got[0], "one user or address") {
		t.Errorf("%q", got)
	}
	if got := warnings(249, one); len(got) > 0 {
		t.Errorf("too few lines: %q", got)
	}
	if got := warnings(300, func(i int) string { return fmt.Sprint("192.0.2.", i/249+1) + request }); len(got) > 0 {
		t.Errorf("two clients: %q", got)
	}
	if got := warnings(300, func(int) string { return `{"api":"a","uid":"1"}` }); len(got) > 0 {
		t.Errorf("events: %q", got)
	}
}

// What draws on a terminal was escaped twice.
func TestAnOddNameIsEscapedOnce(t *testing.T) {
	for name, want := range map[string]string{"a\xffb": `"a\xffb"`, "\x1b[31m": `"\x1b[31m"`, "naïve\\": `"naïve\"`} {
		var told string
		Unread(func(text string) { told = text })(name)
		if !strings.HasPrefix(told, "warning: "+want+" is no field") || !strings.HasSuffix(told, `"attrs": {`+want+`: …}`) {
			t.Errorf("%s, want %s", told, want)
		}
	}
}

// An event's field that nothing reads is told, each name once, and of a log that has no events only a few.
func TestFieldsThatAreNotReadAreTold(t *testing.T) {
	var all []string
	lines := Lines{Warn: func(text string) { all = append(all, text) }}
	r := lines.Reader(strings.NewReader(`{"api": "a", "uid": "1", "plan": "pro", "attrs": {"seats": 3}}
{"api": "a", "uid": "1", "plan": {"of": "team"}, "a": 1, "b": 2, "` + strings.Repeat("c", 1000) + `": 3, "d": 4, "e": 5}
`))
	for range 2 {
		if e, _, err := r.Next(); err != nil || e.UID != "1" {
			t.Fatal(e, err)
		}
	}
	for _, text := range all {
		if len(text) > 400 {
			t.Errorf("%d bytes about one name", len(text))
		}
	}
	if len(all) != unreadTold || !strings.Contains(all[0], `"plan" is no field`) || !strings.Contains(all[1], `"a"`) {
		t.Errorf("%q", all)
	}
}
