package ask

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
)

// In whatever spelling an address is given, the key is that of its events.
func TestKeysThatAreAskedForAreThoseOfEvents(t *testing.T) {
	ask, err := explainQuery(url.Values{"ip": {"::FFFF:192.0.2.1"}, "ip/64": {"2001:DB8::7:1"}, "api": {"search"}})
	if text := event.FormatKey(ask.key); err != nil || ask.api != "search" || text != "ip=192.0.2.1&ip/64=2001%3Adb8%3A%3A%2F64" {
		t.Errorf("%s %s %v", text, ask.api, err)
	}
	ask, err = explainQuery(url.Values{"key.api": {"search"}, "ip/24": {"192.0.2.1"}, "exact": {"true"}, "limit": {"0"}})
	if text := event.FormatKey(ask.key); err != nil || ask.api != "" || text != "api=search&ip/24=192.0.2.0%2F24" || !ask.exact || ask.limit != 0 {
		t.Errorf("%s %+v %v", text, ask, err)
	}
	if ask, err := explainQuery(url.Values{"all": {"true"}, "api": {"search"}}); err != nil || ask.api != "search" || event.FormatKey(ask.key) != "all=true" {
		t.Errorf("%+v %v", ask, err)
	}
	for _, text := range []string{"ip/64=2001%3Adb8%3A%3A%2F64&uid=4%202", "uid=4%202 ip/64=2001:db8::1"} { // as it was printed
		if ask, err := explainQuery(url.Values{"key": {text}}); err != nil || event.FormatKey(ask.key) != "ip/64=2001%3Adb8%3A%3A%2F64&uid=4%202" {
			t.Errorf("%q: %+v %v", text, ask, err)
		}
	}
	for _, q := range []url.Values{
		{"all": {"yes"}}, {"ip/24/64": {"192.0.2.1"}}, {"uid": {"1"}, "key.uid": {"1"}}, {"key.": {"x"}}, {"ip": {"nowhere"}},
		{"key": {"uid=1"}, "uid": {"1"}}, {"key": {"42"}}, {"uid": {"1"}, "limit": {"-1"}}, {"uid": {"1"}, "exact": {"maybe"}}, {"uid": {"1"}, "partition": {"x"}}, {"limit": {"1"}},
	} {
		if ask, err := explainQuery(q); err == nil {
			t.Errorf("%v asks for %+v", q, ask)
		}
	}
	for _, long := range []string{strings.Repeat("é", 11_000), strings.Repeat("u", 257), "a\xffb"} {
		ask, err := explainQuery(url.Values{"attrs.x": {long}, "uid": {long}})
		want := []event.Dim{{Name: "attrs.x", Value: event.CanonicalText(long)}, {Name: "uid", Value: event.CanonicalUID(long)}}
		if err != nil || !slices.Equal(ask.key, want) {
			t.Errorf("%.60v, %v; want %.60v", ask.key, err, want)
		}
	}
}

// Durations are told as people write them.
func TestCommandsThatLastTooLong(t *testing.T) {
	for lasts, want := range map[time.Duration]string{200 * 24 * time.Hour: "200d: at most 90d, ", -time.Second: "-1s: a duration is not negative"} {
		c := Command{Name: "exempt", Key: []event.Dim{{Name: "uid", Value: "u1"}}, For: lasts, Reason: "a test"}
		if err := c.validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: %v, want %s", lasts, err, want)
		}
	}
}
