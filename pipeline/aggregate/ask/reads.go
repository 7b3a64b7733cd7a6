package ask

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"regexp"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
)

// reads notes who reads personal data.
type reads struct{ *base }

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

// whatRead matches the word for the data that was read.
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

// auditWithin bounds the wait for an entry's acknowledgement, while a caller waits.
const auditWithin = 5 * time.Second

// ServeRead answers POST /v1/reads: with 200 the audit has that somebody read what is known about a key,
// or, without one, about many.
func (a *reads) ServeRead(w http.ResponseWriter, r *http.Request) {
	var req readRequest
	err := readJSON(w, r, &req)
	if err == nil {
		err = req.validate()
	}
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	if !a.instance.Online() {
		httpjson.Problem(w, http.StatusServiceUnavailable, "not connected to Kafka yet")
		return
	}
	actor := ActorOf(r.Context())
	e := readAudit{Type: "read", At: now(), Key: event.FormatKey(req.Key), What: req.What, Reason: req.Reason, ID: rand.Text()}
	e.By, e.OnBehalfOf = actor.Who(req.By, req.OnBehalfOf)
	ctx, cancel := context.WithTimeout(r.Context(), auditWithin)
	defer cancel()
	switch err := a.instance.Audit(ctx, cmp.Or(e.Key, "reads"), e); {
	case errors.Is(err, context.DeadlineExceeded):
		httpjson.Problem(w, http.StatusGatewayTimeout, "Kafka has not acknowledged the entry in time: it may be in the audit, or come later")
	case err != nil:
		httpjson.Problem(w, http.StatusServiceUnavailable, "the audit does not take the entry: "+err.Error())
	default:
		httpjson.Reply(w, api.ReadNoted{ID: e.ID})
	}
}
