// Package note describes the news of tallygate notify: a Note is one event, or a state that began or ended; a Message
// goes to a receiver, about one or many Notes. It is pure.
package note

import (
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/keytext"
)

// Kind is a Note's subject. Routes name kinds.
type Kind string

// The kinds.
const (
	Hits            Kind = "hits"             // a rule blocks a large share of the active keys
	Fuse            Kind = "fuse"             // a rule's fuse has blown
	Verdict         Kind = "verdict"          // a verdict of a rule with notify
	RulesRejected   Kind = "rules-rejected"   // an aggregator's rule file, or a version, is not taken
	RulesChanged    Kind = "rules-changed"    // the group runs another version
	EnforcerStale   Kind = "enforcer-stale"   // an enforcer's blocklist is old
	EnforcerGone    Kind = "enforcer-gone"    // an enforcer has not announced itself for a while
	KillSwitch      Kind = "kill-switch"      // an enforcer allows everything, or no longer
	Command         Kind = "command"          // somebody overruled the rules
	Lag             Kind = "lag"              // a partition's counts are behind its events
	AggregatorsGone Kind = "aggregators-gone" // no aggregator answers, or a partition has no owner
	Test            Kind = "test"             // --test
)

// Kinds are all that routes may name, in the order of the page.
func Kinds() []Kind {
	return []Kind{Hits, Fuse, Verdict, RulesRejected, RulesChanged, EnforcerStale, EnforcerGone, KillSwitch, Command, Lag, AggregatorsGone}
}

// State tells states from what merely happened.
type State string

// What a Note is.
const (
	Happened State = "happened"
	Firing   State = "firing"   // a state that began, or that still is
	Resolved State = "resolved" // a state that ended
)

// Note is one thing to tell.
type Note struct {
	Kind    Kind
	State   State
	At      time.Time   // when it happened, or the state began or ended
	Rule    string      // "" where it is about no rule
	Subject string      // what else it is about: an enforcer, an instance, a command, a partition
	What    string      // in words, without the key
	Key     []event.Dim // whom it is about
	By      string      // who did it
	For     string      // on whose behalf, as By says
	Reason  string
	Routes  []string // which routes tell it; nil: all that want its kind
}

// ID names a state among all states.
func (n *Note) ID() string { return string(n.Kind) + "|" + n.Rule + "|" + n.Subject }

// Message is one message to a receiver. Its JSON is the body of a webhook: docs/api/notification.schema.json.
type Message struct {
	Version  int       `json:"version"` // of this form: 1
	ID       string    `json:"id"`      // of the delivery: the same when it is sent again
	Kind     Kind      `json:"kind"`
	State    State     `json:"state"`
	Route    string    `json:"route"`
	Rule     string    `json:"rule,omitempty"`
	Subject  string    `json:"subject,omitempty"` // where all Notes have the same
	Title    string    `json:"title"`
	Text     string    `json:"text"`
	Count    int       `json:"count"`             // of Notes
	Dropped  int       `json:"dropped,omitempty"` // Notes that this receiver was never told, since the message before
	First    time.Time `json:"first"`             // the earliest Note's time
	Last     time.Time `json:"last"`
	Examples []Example `json:"examples"`       // of the Notes, the first ones
	Link     string    `json:"link,omitempty"` // to the console
}

// Example is one Note of a Message.
type Example struct {
	At      time.Time         `json:"at"`
	Rule    string            `json:"rule,omitempty"`
	Subject string            `json:"subject,omitempty"`
	What    string            `json:"what"`
	Key     map[string]string `json:"key,omitempty"` // values masked, unless the receiver says keys: shown
	KeyText string            `json:"key_text,omitempty"`
	By      string            `json:"by,omitempty"`
	For     string            `json:"on_behalf_of,omitempty"`
	Reason  string            `json:"reason,omitempty"`
}

// Mask stands for what a receiver is not shown.
const Mask = "•••"

// ExampleOf is a Note as an example. shown tells the key's values.
func ExampleOf(n *Note, shown bool) Example {
	e := Example{At: n.At.UTC(), Rule: n.Rule, Subject: n.Subject, What: OneLine(n.What), By: OneLine(n.By), For: OneLine(n.For), Reason: OneLine(n.Reason)}
	if len(n.Key) == 0 {
		return e
	}
	e.Key = map[string]string{}
	var texts []string
	for _, d := range n.Key {
		text := keytext.Format([]event.Dim{d})
		if !shown && isPersonal(d.Name) {
			name, _, _ := strings.Cut(text, "=")
			text, d.Value = name+"="+Mask, Mask
		}
		e.Key[d.Name] = d.Value
		texts = append(texts, text)
	}
	slices.Sort(texts)
	e.KeyText = strings.Join(texts, " ")
	return e
}

// isPersonal reports whether a dimension may name a person: all but the API, and everybody.
func isPersonal(dimension string) bool { return dimension != "api" && dimension != "all" }

// Hash is a short name for texts, in order: 16 letters and digits.
func Hash(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
}

// Bytes bounds of what a receiver gets.
const (
	MaxTitle = 200
	MaxText  = 4 << 10
)

// Cut shortens a text to so many bytes, at a character.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const mark = "…"
	cut := most - len(mark)
	for cut > 0 && text[cut]&0xC0 == 0x80 {
		cut--
	}
	return text[:cut] + mark
}
