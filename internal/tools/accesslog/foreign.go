package accesslog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
)

// foreign are formats that are not read: a line that looks like one is refused with its name, and with
// what to do.
var foreign = []struct {
	name, do string
	looks    *regexp.Regexp
}{
	{"HAProxy's own format", asJSON, regexp.MustCompile(`\S+:\d+ \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d\.\d+\] `)},
	{"Envoy's own format", asJSON, regexp.MustCompile(`^\[\d{4}-\d\d-\d\dT[^\]]*\] "`)},
	{"the format of an AWS load balancer", toEvents, regexp.MustCompile(`^(?:(?:https?|h2|grpcs?|wss?|tls) (?:\d\.\d )?)?\d{4}-\d\d-\d\dT\S+ \S+ \S+:\d+ `)},
	{"the W3C extended format, as of CloudFront and IIS", toEvents, regexp.MustCompile(`^#(?:Version|Fields|Software|Date|Start-Date|Remark):|^\d{4}-\d\d-\d\d[\t ]\d\d:\d\d:\d\d[\t ]`)},
	{"an Amazon S3 access log", toEvents, regexp.MustCompile(`^[0-9a-f]{64} \S+ \[`)},
	{"Squid's own format", "write it with logformat combined", regexp.MustCompile(`^\d{9,10}\.\d{3} +\d+ \S+ [A-Z_]+/\d{3} `)},
	{"an error log", "read the access log", regexp.MustCompile(`^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[|^\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d`)},
	{"a line of syslog", "cut what syslog puts in front, or have the server write a file", regexp.MustCompile(`^(?:<\d+>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|1 \d{4}-\d\d-\d\dT\S+|\d{4}-\d\d-\d\dT\S+) \S+ \S+`)},
}

const (
	asJSON   = "have it write JSON as docs/proxies.md shows, and read that with --format json"
	toEvents = "turn its lines into events, one JSON object a line: docs/reference/events.md"
)

// knownJSON are logs with one JSON object a request, by fields that all of their lines have, and how to
// read them.
var knownJSON = []struct {
	name, format string
	fields       []string
}{
	{"Caddy", "caddy", []string{"request", "ts"}},
	{"Traefik", "traefik", []string{"RequestMethod", "DownstreamStatus"}},
	{"Envoy or Istio", "json:time=start_time,status=response_code,ip=x_forwarded_for,bytes=bytes_sent,agent=user_agent", []string{"start_time", "response_code"}},
	{"Cloudflare", "json:time=EdgeStartTimestamp,ip=ClientIP,method=ClientRequestMethod,path=ClientRequestURI,status=EdgeResponseStatus,bytes=EdgeResponseBytes", []string{"ClientRequestMethod", "EdgeResponseStatus"}},
	{"Amazon API Gateway", "json:time=requestTime,method=httpMethod,path=resourcePath,bytes=responseLength", []string{"requestTime", "httpMethod"}},
	{"Azure's Application Gateway", "json:time=timeStamp,ip=properties.clientIP,method=properties.httpMethod,path=properties.requestUri,status=properties.httpStatus,bytes=properties.sentBytes,agent=properties.userAgent", []string{"timeStamp", "properties"}},
	{"Google's load balancer", "json:time=timestamp,ip=httpRequest.remoteIp,method=httpRequest.requestMethod,path=httpRequest.requestUrl,status=httpRequest.status,bytes=httpRequest.responseSize,agent=httpRequest.userAgent", []string{"timestamp", "httpRequest"}},
	{"a proxy", "json", []string{"method"}},
}

// advise adds to a line's error which format it seems to have. The format that was named is not advised
// again.
func (r *Reader) advise(line []byte, err error) error {
	if line = bytes.TrimLeft(line, " \t"); line[0] == '{' {
		return r.adviseJSON(line, err)
	}
	for _, f := range foreign {
		if f.looks.Match(line) {
			return fmt.Errorf("%w: this looks like %s: %s", err, f.name, f.do)
		}
	}
	return err
}

func (r *Reader) adviseJSON(line []byte, err error) error {
	if r.layout != nil && r.format != JSON { // its fields were named
		return err
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil {
		return err
	}
	for _, k := range knownJSON {
		has := true
		for _, name := range k.fields {
			_, found := fields[name]
			has = has && found
		}
		if has && k.format != string(r.format) {
			return fmt.Errorf("%w: this looks like the log of %s: read it with --format %s", err, k.name, k.format)
		}
	}
	return err
}
