package session

import (
	"encoding/json"
	"net/http"
	"time"
)

// kept is the content of Keep's cookie.
type kept struct {
	By    string    `json:"by"` // the reader whom it is for
	Until time.Time `json:"until"`
	Text  []byte    `json:"text"`
}

const (
	keptFor = time.Minute
	maxKept = 2 << 10 // bytes, so that it is one cookie
)

// Keep keeps a text for the next page of the same reader, whichever of several consoles answers it. It is sealed:
// what the console shows as its own word nobody else can write. A long text is left out.
func (m *Manager) Keep(w http.ResponseWriter, r *http.Request, text []byte) {
	if len(text) == 0 || len(text) > maxKept {
		return
	}
	k := kept{By: From(r.Context()).Name, Until: time.Now().Add(keptFor), Text: text}
	if sealed, err := json.Marshal(k); err == nil {
		_ = m.jar.set(w, r, saidCookie, sealed, k.Until, http.SameSiteStrictMode) // of maxKept it is not too long
	}
}

// Take returns once what Keep kept; nil: nothing.
func (m *Manager) Take(w http.ResponseWriter, r *http.Request) []byte {
	sealed, err := m.jar.open(r, saidCookie)
	m.jar.clear(w, r, saidCookie)
	var k kept
	if err != nil || json.Unmarshal(sealed, &k) != nil || !time.Now().Before(k.Until) || k.By != From(r.Context()).Name {
		return nil
	}
	return k.Text
}
