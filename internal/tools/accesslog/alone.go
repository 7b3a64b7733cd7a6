package accesslog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/words"
)

// firstLines is the number of a log's requests that are looked at, to notice that all seem to be of one client.
const firstLines = 250

// unreadTold bounds the names of fields that no event has: a log whose lines are no events has many.
const unreadTold = 5

// Unread returns what takes names of fields that a decoder does not read, and tells each once.
func Unread(warn func(text string)) func(name string) {
	var told []string
	return func(name string) {
		if len(told) == unreadTold || slices.Contains(told, name) {
			return
		}
		told = append(told, strings.Clone(name))
		name = `"` + words.Cell(name, 64) + `"`
		warn(fmt.Sprintf(`warning: %s is no field of an event, and is not read: what rules ask for besides stands in attrs, as in "attrs": {%s: …}`, name, name))
	}
}

// alone notices a log whose first requests are all of one user or address: often its field is that of a
// proxy, and all visitors would share one limit.
type alone struct {
	lines   int
	who     string
	several bool
}

// count looks at an event. It returns what looks wrong with the log, once; "" when nothing does.
func (a *alone) count(e *event.Event) string {
	if a.lines >= firstLines {
		return ""
	}
	who := e.UID
	if who == "" && e.IP.IsValid() {
		who = e.IP.String()
	}
	if a.lines++; a.lines == 1 {
		a.who = who
	}
	a.several = a.several || who != a.who
	switch {
	case a.lines < firstLines || a.several:
		return ""
	case a.who == "":
		return fmt.Sprintf("warning: the first %d requests have neither a user nor an address, so no rule by these counts them: name the fields, as in --format json:uid=user,ip=client_ip", firstLines)
	}
	return fmt.Sprintf("warning: the first %d requests are all of one user or address. If it is your proxy's, name the field with the client's, as in --format json:ip=x_forwarded_for, and your proxies: --trusted-proxies 10.0.0.0/8", firstLines)
}
