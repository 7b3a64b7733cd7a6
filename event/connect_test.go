package event_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
)

// What the page on Kafka Connect says that connectors send is an event, or a dead letter in the words that it shows.
func TestPageOfConnectSaysWhatIsRead(t *testing.T) {
	text, err := os.ReadFile("../docs/connect.md")
	if err != nil {
		t.Fatal(err)
	}
	d, events, configs := event.NewDecoder(), 0, 0
	for _, m := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(text, -1) {
		if !json.Valid(m[1]) {
			t.Errorf("this is no JSON: %s", m[1])
		}
		if strings.Contains(string(m[1]), "connector.class") {
			configs++
			continue
		}
		got, err := d.Decode(m[1], nil, nil, nil)
		if err != nil || len(d.Bad) > 0 || len(got) != 1 || got[0].UID != "42" || got[0].API != "order.create" || got[0].ID == "" || got[0].Time.String()[:17] != "2026-11-21T10:00:" {
			t.Errorf("%s is %+v: %v, %v", m[1], got, err, d.Bad)
		}
		events++
	}
	said := 0
	for _, m := range regexp.MustCompile("(?m)^\\| `([{\"].*)` \\| `(.*)` \\|$").FindAllSubmatch(text, -1) {
		_, err := d.Decode(m[1], nil, nil, nil)
		var detail string
		if err != nil {
			detail = err.Error()
		}
		for _, bad := range d.Bad {
			detail += bad.Error()
		}
		if !strings.Contains(detail, string(m[2])) {
			t.Errorf("of %s is said %q, want %q", m[1], detail, m[2])
		}
		said++
	}
	if configs != 2 || events != 2 || said < 5 {
		t.Errorf("%d connectors, %d events, %d dead letters are found", configs, events, said)
	}
}
