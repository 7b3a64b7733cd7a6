package console

import (
	"errors"
	"net/http"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/keytext"
	"github.com/tallygate/tallygate/internal/console/keyref"
)

// eyes show keys to one reader: personal values are masked, but for those that the reader has searched for.
type eyes struct {
	*Keys
	known []event.Dim
}

const shownCookie = "tallygate-shown"

// eyesOf are the reader's, on a page about a key.
func (r *request) eyesOf(k *Keys, key []event.Dim) *eyes {
	e := &eyes{Keys: k}
	if c, err := r.Cookie(shownCookie); err == nil && k.refs.Shown(c.Value, r.Who.Name, key, r.Now) || !k.refs.HasPersonal(key) {
		e.known = key
	}
	return e
}

// text writes a key for the reader.
func (e *eyes) text(key []event.Dim) string { return e.refs.Mask(key, e.known...) }

// open reports whether a key is shown as it is.
func (e *eyes) open(key []event.Dim) bool { return e.text(key) == keytext.Format(key) }

// path is the address of a key's page.
func (e *eyes) path(key []event.Dim) string { return keyPath(e.Keys, key) }

func keyPath(k *Keys, key []event.Dim) string { return "/key/" + k.refs.Ref(key) }

// keyOf is the key of a reference in the path.
func (r *request) keyOf(k *Keys) ([]event.Dim, error) {
	key, err := k.refs.Key(r.PathValue("ref"))
	if err != nil {
		return nil, &Problem{Status: http.StatusNotFound, Title: "This link names no key", Detail: "The reference in the address was not made by this console, or its secret has changed since.",
			Do: "Search for the key by its value.", Link: "/key"}
	}
	return key, nil
}

// reveal records in the audit that the reader sees a key, and returns the cookie by which it is shown. Whoever
// may not be recorded sees nothing.
func (r *request) reveal(k *Keys, key []event.Dim, what, reason string) (*http.Cookie, error) {
	if !k.refs.HasPersonal(key) {
		return nil, nil
	}
	if err := r.recordRead(key, what, reason); err != nil {
		return nil, err
	}
	had := ""
	if c, err := r.Cookie(shownCookie); err == nil {
		had = c.Value
	}
	return r.server.cookie(shownCookie, k.refs.Show(had, r.Who.Name, key, r.Now), keyref.ShownFor), nil
}

// recordRead writes into the audit that the reader reads personal data: of a key, or, without one, of many.
func (r *request) recordRead(key []event.Dim, what, reason string) error {
	if _, err := r.API.Read(r.ctx(), api.Read{Key: dimsMap(key), What: what, Reason: reason}); err != nil {
		p := *problemOf(err)
		p.Title, p.Detail = "The read cannot be recorded, so nothing is shown", "Reads of personal data are kept in the audit, and the aggregator did not take this one: "+p.Detail
		return &p
	}
	return nil
}

func dimsMap(key []event.Dim) map[string]string {
	m := map[string]string{}
	for _, d := range key {
		m[d.Name] = d.Value
	}
	return m
}

func dimsOf(key map[string]string) []event.Dim {
	dims := make([]event.Dim, 0, len(key))
	for name, value := range key {
		dims = append(dims, event.Dim{Name: name, Value: value})
	}
	text := event.AppendKey(nil, dims)
	if sorted, err := event.ParseKey(text); err == nil {
		return sorted
	}
	return dims
}

// parseKey reads what somebody typed as a key.
func parseKey(text string) ([]event.Dim, error) {
	key, err := keytext.Parse(text)
	if errors.Is(err, keytext.ErrNone) {
		return nil, &Problem{Status: http.StatusUnprocessableEntity, Title: "Which key?", Detail: "Nothing was typed.", Do: "Write a dimension and its exact value, such as uid=42."}
	}
	if err != nil {
		return nil, &Problem{Status: http.StatusUnprocessableEntity, Title: "This is not a key", Detail: err.Error(), Do: "Write each dimension with its exact value, such as uid=42 or uid=42 attrs.campaign=summer."}
	}
	return key, nil
}

// timeOf is a moment of the engine's; zero where there is none.
func timeOf(m event.Micros) time.Time {
	if m == event.NoTime {
		return time.Time{}
	}
	return m.Time()
}
