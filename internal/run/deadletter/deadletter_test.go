package deadletter_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/deadletter"
)

// sent are the events of a letter, each as its id, uid and time.
func sent(text string, now bool) (list []string, err error) {
	l, err := deadletter.Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	events, err := l.Events(new(event.Decoder), now)
	for _, e := range events {
		at := "-"
		if e.Time != event.NoTime {
			at = e.Time.String()
		}
		list = append(list, fmt.Sprintf("%s %s %s", e.ID, e.UID, at))
	}
	return list, err
}

const place = `"topic":"shop.events","partition":3,"offset":118,`

// An event without an id gets one that is the same each time that its letter is sent, and no other
// event's.
func TestWhatIsSentHasAnID(t *testing.T) {
	three := `"value":"[{\"api\":\"a\",\"uid\":\"1\"},{\"api\":\"a\",\"uid\":\"2\",\"id\":\"own\"},{\"api\":\"a\",\"uid\":\"3\",\"time\":1}]"}`
	long := strings.Repeat("t", 249)
	for _, c := range []struct {
		about, letter string
		now           bool
		want          []string
	}{
		{"one event", `{` + place + `"value":"{\"api\":\"a\",\"uid\":\"1\"}"}`, false, []string{"shop.events/3@118#0 1 -"}},
		{"an array", `{` + place + three, false, []string{"shop.events/3@118#0 1 -", "own 2 -", "shop.events/3@118#2 3 1970-01-01T00:00:00.001Z"}},
		{"an element of it", `{` + place + `"index":[2],` + three, false, []string{"shop.events/3@118#2 3 1970-01-01T00:00:00.001Z"}},
		{"without its time", `{` + place + `"index":[2,1],` + three, true, []string{"shop.events/3@118#2 3 -", "own 2 -"}},
		{"no record's letter", `{` + three, false, []string{" 1 -", "own 2 -", " 3 1970-01-01T00:00:00.001Z"}},
		{"a CloudEvent", `{` + place + `"index":[-1],"headers":[{"key":"ce_type","value":"a"},{"key":"ce_id","value":"7"},{"key":"ce_source","value":"/s"}],"value":""}`, false, []string{"/s/7  -"}},
		{"a CloudEvent without an id", `{` + place + `"headers":[{"key":"ce_type","value":"a"}],"value":"{\"uid\":\"4\"}"}`, false, []string{"shop.events/3@118#0 4 -"}},
		{"a long topic", `{"topic":"` + long + `","value":"{\"api\":\"a\"}"}`, false, []string{canonical(long+"/0@0#0") + "  -"}},
		{"an empty array", `{` + place + `"value":"[]"}`, false, nil},
	} {
		got, err := sent(c.letter, c.now)
		if err != nil {
			t.Errorf("%s: %v", c.about, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (- expected, + got)\n%s", c.about, diff)
		}
	}
}

func canonical(id string) string {
	e := event.Event{ID: id, API: "a", Cost: event.One, Time: event.NoTime, BrokerTime: event.NoTime}
	e.Canonicalize()
	return e.ID
}

// What is no letter, or not mended, is refused whole.
func TestWhatIsNotSent(t *testing.T) {
	value := `"value":"[{\"api\":\"a\"},{\"api\":\"b\"}]"}`
	for letter, want := range map[string]string{
		`17`:                                 "no object as --json writes it",
		`{`:                                  "no object as --json writes it",
		`{"indx":[0],` + value:               `unknown field "indx"`,
		`{` + value + `{}`:                   "there is more after it",
		`{"offset":"1",` + value:             "no object as --json writes it",
		`{` + place[:len(place)-1] + `}`:     "it has no value",
		`{"value":"","value_base64":"AA=="}`: "which of them?",
		`{"value":"{}"}`:                     "still malformed",
		`{"value":""}`:                       "still malformed",
		`{"cut_from":9,` + value:             "cut from 9 bytes",
		`{"headers_cut":2,` + value:          "2 headers of the record missing",
		`{"index":[0,2],` + value:            "index names element 2 of an array that has 2",
		`{"index":[-2],` + value:             "index names element -2",
		`{"index":[1,0,1],` + value:          "index names element 1 twice",
		`{"topic":"a b",` + value:            "not a valid name of a topic",
		`{"topic":"` + strings.Repeat("t", 250) + `",` + value: "not a valid name of a topic",
		`{"topic":"t","partition":-1,` + value:                 "no record can be there",
		`{"topic":"t","offset":-1,` + value:                    "no record can be there",
	} {
		if got, err := sent(letter, false); err == nil || !strings.Contains(err.Error(), want) || got != nil {
			t.Errorf("%.100s: %q, %v, want %q", letter, got, err, want)
		}
	}
}
