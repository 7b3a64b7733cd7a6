package aggregate

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"regexp"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/httpjson"
	"github.com/tallygate/tallygate/pipeline/event"
)

// auditor writes entries about what others do: who reads personal data, and which enforcers are switched off.
type auditor struct{ overview }

// readAudit is somebody's look at what is known about a key, in the audit topic.
type readAudit struct {
	Type       string       `json:"type"`
	At         event.Micros `json:"at"`
	By         string       `json:"by"`
	OnBehalfOf string       `json:"on_behalf_of,omitempty"`
	Key        string       `json:"key,omitempty"` // none: what is known about many
	What       string       `json:"what"`
	Reason     string       `json:"reason,omitempty"`
	ID         string       `json:"id"`
}

// readRequest is an api.Read as it is read: the key may be text.
type readRequest struct {
	api.Read
	Key keyDims `json:"key"`
}

// whatRead is what was read: a word.
var whatRead = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)

func (r *readRequest) validate() error {
	switch {
	case len(r.Key) == 0 && r.Reason == "":
		return errors.New(`which key? For example: {"key": {"uid": "42"}, "what": "explain"}; to read about many keys needs a reason`)
	case !whatRead.MatchString(r.What):
		return errors.New("what was read? One word of small letters, digits and -, at most 64, such as explain")
	}
	return checkTexts(map[string]string{"by": r.By, "on_behalf_of": r.OnBehalfOf, "reason": r.Reason})
}

// auditWithin is how long Kafka may take for an entry that a caller waits for.
const auditWithin = 5 * time.Second

// ServeRead answers POST /v1/reads: with 200 the audit has that somebody read what is known about a key,
// or, without one, about many.
func (a auditor) ServeRead(w http.ResponseWriter, r *http.Request) {
	var req readRequest
	err := readJSON(w, r, &req)
	if err == nil {
		err = req.validate()
	}
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	if !a.online.Load() {
		httpjson.Problem(w, http.StatusServiceUnavailable, "not connected to Kafka yet")
		return
	}
	actor := actorOf(r.Context())
	e := readAudit{Type: "read", At: now(), Key: event.FormatKey(req.Key), What: req.What, Reason: req.Reason, ID: rand.Text()}
	e.By, e.OnBehalfOf = actor.who(req.By, req.OnBehalfOf)
	ctx, cancel := context.WithTimeout(r.Context(), auditWithin)
	defer cancel()
	switch err := a.writeAudit(ctx, cmp.Or(e.Key, "reads"), e); {
	case errors.Is(err, context.DeadlineExceeded):
		httpjson.Problem(w, http.StatusGatewayTimeout, "Kafka has not acknowledged the entry in time: it may be in the audit, or come later")
	case err != nil:
		httpjson.Problem(w, http.StatusServiceUnavailable, "the audit does not take the entry: "+err.Error())
	default:
		httpjson.Reply(w, api.ReadNoted{ID: e.ID})
	}
}

// KillSwitch says that an enforcer's kill switch was turned.
type KillSwitch struct {
	Enforcer string    // its name
	ID       string    // of its process
	Enabled  bool      // false: it allows everything
	Cause    string    // of one that is off
	Since    time.Time // by its clock; zero is unknown
}

// killSwitchAudit is a KillSwitch in the audit topic.
type killSwitchAudit struct {
	Type       string        `json:"type"`
	At         event.Micros  `json:"at"`
	By         string        `json:"by"`
	Enforcer   string        `json:"enforcer"`
	EnforcerID string        `json:"enforcer_id"`
	Enabled    bool          `json:"enabled"`
	Cause      string        `json:"cause,omitempty"`
	Since      *event.Micros `json:"since,omitempty"`
}

// AuditKillSwitch writes an entry about an enforcer. It does not wait until Kafka has it.
func (a auditor) AuditKillSwitch(k KillSwitch) {
	e := killSwitchAudit{Type: "kill-switch", At: now(), By: a.name(), Enforcer: k.Enforcer, EnforcerID: k.ID, Enabled: k.Enabled, Cause: k.Cause}
	if !k.Since.IsZero() {
		since := event.FromTime(k.Since)
		e.Since = &since
	}
	a.audits.owe("kill-switch", e)
}

// Owns reports whether this instance has a partition now.
func (a auditor) Owns(partition int32) bool {
	p := a.partition(partition)
	return p != nil && p.Live()
}
