package session

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ticket is the content of the session's cookie.
type ticket struct {
	Token   string    `json:"t"`
	Refresh string    `json:"f,omitempty"` // of the issuer, for the next token
	Until   time.Time `json:"u,omitzero"`  // when the token expires; zero is unknown
	Begun   time.Time `json:"b"`           // the login
	Seen    time.Time `json:"s"`           // when the aggregator last said who it is
	Name    string    `json:"n"`           // what it said then
	Role    string    `json:"r"`
}

// end returns the end of the session if it is not used further.
func (t ticket) end() time.Time {
	end := t.Seen.Add(idleFor)
	if last := t.Begun.Add(lastsFor); last.Before(end) {
		end = last
	}
	if t.Refresh == "" && !t.Until.IsZero() && t.Until.Before(end) {
		end = t.Until
	}
	return end
}

// The cookies, by what they are for. A cookie of one purpose cannot be used for another.
const (
	sessionCookie = "tallygate"
	loginCookie   = "tallygate-login"
	saidCookie    = "tallygate-said"
)

const (
	partBytes = 3800 // of a cookie's value: browsers keep 4096 with its name and attributes
	maxParts  = 5    // an issuer's token may name a hundred groups
)

// jar is the cookies of the console.
type jar struct {
	seal   *sealer
	secure bool // browsers speak TLS, with the console or with a proxy before it
}

// name is a cookie's full name. __Host- keeps other hosts of the same domain from setting it,
// and needs TLS.
func (j *jar) name(purpose string, part int) string {
	name := purpose
	if j.secure {
		name = "__Host-" + name
	}
	if part > 0 {
		name += "." + strconv.Itoa(part)
	}
	return name
}

// ticket reads the session's cookie, and returns errNoSession unless it is one that has not ended.
func (j *jar) ticket(r *http.Request) (t ticket, err error) {
	text, err := j.open(r, sessionCookie)
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(text, &t); err != nil || !time.Now().Before(t.end()) {
		return t, errNoSession
	}
	return t, nil
}

func (j *jar) setTicket(w http.ResponseWriter, r *http.Request, t ticket) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return j.set(w, r, sessionCookie, text, t.Begun.Add(lastsFor), http.SameSiteStrictMode)
}

// open reads a cookie that set has set.
func (j *jar) open(r *http.Request, purpose string) ([]byte, error) {
	var sealed strings.Builder
	for part := range maxParts {
		c, err := r.Cookie(j.name(purpose, part))
		if err != nil {
			break
		}
		sealed.WriteString(c.Value)
	}
	if sealed.Len() == 0 {
		return nil, errNoSession
	}
	return j.seal.open(purpose, sealed.String())
}

// set seals a text into a cookie, or into several if it is long.
func (j *jar) set(w http.ResponseWriter, r *http.Request, purpose string, text []byte, until time.Time, site http.SameSite) error {
	sealed := j.seal.close(purpose, text)
	if len(sealed) > maxParts*partBytes {
		return fmt.Errorf("the login's token is too long for cookies (%d bytes): have the issuer put fewer groups into it", len(sealed))
	}
	for part := range maxParts {
		name := j.name(purpose, part)
		if sealed == "" { // of a longer one before
			if _, err := r.Cookie(name); err != nil {
				break
			}
			http.SetCookie(w, j.bake(name, "", time.Time{}, site))
			continue
		}
		n := min(len(sealed), partBytes)
		http.SetCookie(w, j.bake(name, sealed[:n], until, site))
		sealed = sealed[n:]
	}
	return nil
}

// clear has the browser forget a cookie.
func (j *jar) clear(w http.ResponseWriter, r *http.Request, purpose string) {
	for part := range maxParts {
		name := j.name(purpose, part)
		if _, err := r.Cookie(name); err == nil {
			http.SetCookie(w, j.bake(name, "", time.Time{}, http.SameSiteStrictMode))
		}
	}
}

// bake is a cookie that scripts do not see; without a value, one that ends.
func (j *jar) bake(name, value string, until time.Time, site http.SameSite) *http.Cookie {
	c := &http.Cookie{Name: name, Value: value, Path: "/", HttpOnly: true, Secure: j.secure, SameSite: cmp.Or(site, http.SameSiteStrictMode), Expires: until}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}
