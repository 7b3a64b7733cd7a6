package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// A service behind a proxy that did not list it had one key for all callers, and one without its
// authentication in front never denied anybody: neither was seen until the first incident.
func TestMistakesOfOptionsAreTold(t *testing.T) {
	proxies := netip.MustParsePrefix("10.0.0.0/8")
	uid, peer := httplimit.Header("X-User"), httplimit.ClientIP()
	for about, c := range map[string]struct {
		options httplimit.Options
		request func(i int, r *http.Request)
		want    string
		noDims  uint64
	}{
		"nobody is known": {httplimit.Options{UID: uid}, nil, "[no_dimensions]", 2000},
		"a user is unknown beside an address": {httplimit.Options{UID: uid, IP: httplimit.ClientIP(proxies)}, func(i int, r *http.Request) { r.Header.Set("X-Forwarded-For", fmt.Sprint("192.0.2.", i%250)) },
			"[no_uid]", 0},
		"a guest before others": {httplimit.Options{UID: uid, IP: httplimit.ClientIP(proxies)}, func(i int, r *http.Request) { r.Header.Set("X-User", []string{"", "42"}[min(i/19, 1)]) }, "[]", 19},
		"somebody is":           {httplimit.Options{UID: uid}, func(i int, r *http.Request) { r.Header.Set("X-User", []string{"", "42"}[min(i/19, 1)]) }, "[]", 19},
		"the proxy is not listed": {httplimit.Options{IP: peer}, func(i int, r *http.Request) { r.Header.Set("X-Forwarded-For", fmt.Sprint("192.0.2.", i%250)) },
			"[same_address]", 0},
		"nor are health checks without the header a sign": {httplimit.Options{IP: peer}, func(i int, r *http.Request) {
			if i%2 == 0 {
				r.Header.Set("X-Forwarded-For", "192.0.2.1")
			} else {
				r.RemoteAddr = "10.0.0.9:1"
			}
		}, "[same_address]", 0},
		"the proxy is listed": {httplimit.Options{IP: httplimit.ClientIP(proxies)}, func(i int, r *http.Request) { r.Header.Set("X-Forwarded-For", fmt.Sprint("192.0.2.", i%250)) },
			"[]", 0},
		"no proxy": {httplimit.Options{IP: peer}, nil, "[]", 0},
		"several proxies": {httplimit.Options{IP: peer}, func(i int, r *http.Request) {
			r.Header.Set("X-Forwarded-For", "192.0.2.1")
			r.RemoteAddr = fmt.Sprintf("10.0.0.%d:1", i%2+1)
		}, "[]", 0},
		"a public address": {httplimit.Options{IP: peer}, func(_ int, r *http.Request) { r.Header.Set("X-Forwarded-For", "x"); r.RemoteAddr = "192.0.2.1:1" }, "[]", 0},
	} {
		t.Run(about, func(t *testing.T) {
			table, err := enforce.NewTable(enforce.Config{})
			if err != nil {
				t.Fatal(err)
			}
			var log testrun.Output
			c.options.Logger = log.Logger()
			gate, err := httplimit.NewGate(table, c.options)
			if err != nil {
				t.Fatal(err)
			}
			handler := gate.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			for i := range 2000 {
				r := httptest.NewRequest("GET", "/", nil)
				r.RemoteAddr = "10.0.0.1:1234"
				if c.request != nil {
					c.request(i, r)
				}
				handler.ServeHTTP(httptest.NewRecorder(), r)
			}
			s := gate.Stats()
			if got := fmt.Sprint(s.Suspects); got != c.want || s.NoDims != c.noDims {
				t.Errorf("%s, %d without dimensions; want %s, %d", got, s.NoDims, c.want, c.noDims)
			}
			if n := log.Count("level=WARN"); n != len(s.Suspects) {
				t.Errorf("%d lines:\n%s", n, &log)
			}
		})
	}
}
