package event

import (
	"fmt"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// A producer that wrote user instead of uid, or a time in seconds, saw no error: its events matched no
// rule, or were too old.
func TestSuspects(t *testing.T) {
	for text, want := range map[string]string{
		`{"api":"a","uid":"42"}`:                                                            "map[]",
		`{"api":"a","user":"42"}`:                                                           "map[uid_name:1]",
		`{"api":"a","userId":42}`:                                                           "map[uid_name:1]",
		`{"user_id":"42","api":"a"}`:                                                        "map[uid_name:1]",
		`{"UID":"42","api":"a"}`:                                                            "map[uid_name:1]",
		`{"api":"a","user":null}`:                                                           "map[]",
		`{"api":"a","user":{"name":"x"}}`:                                                   "map[]",
		`{"api":"a","user":"42","uid":"42"}`:                                                "map[]",
		`{"api":"a","attrs":{"user":"42"}}`:                                                 "map[]",
		`{"api":"a","uid":"4","timestamp":1}`:                                               "map[time_name:1]",
		`{"api":"a","uid":"4","ts":"x"}`:                                                    "map[time_name:1]",
		`{"api":"a","uid":"4","@timestamp":"x"}`:                                            "map[time_name:1]",
		`{"api":"a","uid":"4","ts":"x","time":"2026-11-21T10:00:00Z"}`:                      "map[]",
		`{"api":"a","uid":"4","time":1795000000}`:                                           "map[time_1970:1]",
		`{"api":"a","uid":"4","time":1795000000.5}`:                                         "map[time_1970:1]",
		`{"api":"a","uid":"4","time":1795000000000}`:                                        "map[]",
		`{"api":"a","uid":"4","time":0}`:                                                    "map[]",
		`{"api":"a","sub":"42"}`:                                                            "map[uid_name:1]",
		`{"api":"a","account_id":42}`:                                                       "map[uid_name:1]",
		`{"@timestamp":1795000000.5,"uid":"4","api":"a"}`:                                   "map[time_name:1]",
		`{"date":1795000000.5,"uid":"4","api":"a"}`:                                         "map[time_name:1]",
		`{"api":"a","uid":"4","occurred_at":"2026-11-21T10:00:00Z"}`:                        "map[time_name:1]",
		`{"api":"a","uid":"4","client_ip":"192.0.2.7"}`:                                     "map[ip_name:1]",
		`{"api":"a","uid":"4","X-Forwarded-For":"192.0.2.7"}`:                               "map[ip_name:1]",
		`{"api":"a","ip":"192.0.2.7","clientIp":"192.0.2.7"}`:                               "map[]",
		`{"api":"a","ip":"192.0.2.7:4711"}`:                                                 "map[]",
		`{"api":"a","ip":"[2001:db8::1]"}`:                                                  "map[]",
		`{"api":"a","ip":""}`:                                                               "map[]",
		`{"api":"a","ip":null}`:                                                             "map[]",
		`{"api":"a","ip":"203.0.113.9, 10.0.0.1"}`:                                          "map[ip_form:1]",
		`{"api":"a","ip":["203.0.113.9"]}`:                                                  "map[ip_form:1]",
		`{"api":"a","ip":{"v4":"203.0.113.9"}}`:                                             "map[ip_form:1]",
		`{"api":"a","ip":"host.example","remote_addr":"192.0.2.7"}`:                         "map[ip_form:1]",
		`{"api":"a","ip":"host.example","ip":"192.0.2.7"}`:                                  "map[]", // the last one counts
		`{"user":"42"}`:                                                                     "map[]", // no event at all
		`[{"api":"a","user":"42"},{"api":"a","user":"43","ts":1},{"api":"a","uid":"1"},{}]`: "map[time_name:1 uid_name:2]",
		`[{"api":"a","user":"42"},`:                                                         "map[]", // a record that is none
	} {
		var d Decoder
		_, _ = d.Decode([]byte(text), nil, nil, nil)
		if got := fmt.Sprint(d.Suspects.ByReason()); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for _, reason := range SuspectReasons {
		if SuspectAdvice(reason) == "" {
			t.Errorf("%s says nothing", reason)
		}
	}
	if at := Micros(1795000000) * Second; !TooFarAhead(at+Day+1, at) || TooFarAhead(at+Day, at) || TooFarAhead(at, NoTime) || TooFarAhead(NoTime, at) {
		t.Error("what is too far ahead")
	}
}

// What is suspect is decoded like any other event, and names of fields cost nothing.
func TestLookingForSuspectsDoesNotAllocate(t *testing.T) {
	value := []byte(`{"api":"a","user_id":"42","somethingElse":1,"@timestamp":"2026-11-21T10:00:00Z"}`)
	var d Decoder
	dst := make([]Event, 0, 1)
	if n := testrun.Allocs(100, func() { dst, _ = d.Decode(value, nil, nil, dst[:0]) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
