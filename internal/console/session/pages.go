package session

import (
	"html/template"
	"net/http"
	"strings"
)

// Kind selects a page of this package.
type Kind string

// The pages.
const (
	LogIn   Kind = "login"   // a form with the fields token and next, to POST /login
	Onwards Kind = "onwards" // goes on to Next by itself: <meta http-equiv="refresh">
	Refused Kind = "refused" // Message says why; Next, if any, is where to go
)

// View is a page of this package.
type View struct {
	Kind    Kind
	Message string // for the reader; "" is none
	Next    string // a path of the console
	Issuer  bool   // the reader may log in at GET /login/start?next=…, too
	Session Session
}

// isStream reports whether a request is for server-sent events.
func isStream(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}

// fromScript reports whether a script of a page asks.
func fromScript(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return isStream(r) || mode != "" && mode != "navigate" || strings.Contains(r.Header.Get("Accept"), "json")
}

// fromElsewhere reports whether another site's link leads here: then the browser sends no cookie.
func fromElsewhere(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// isPage reports whether a browser asks for a page.
func isPage(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && !fromScript(r)
}

func (m *Manager) render(w http.ResponseWriter, r *http.Request, status int, v View) {
	v.Session = From(r.Context())
	if m.cfg.Render != nil {
		m.cfg.Render(w, r, status, v)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = plain.Execute(w, v)
}

// plain is a page without a layout.
var plain = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
{{if eq .Kind "onwards"}}<meta http-equiv="refresh" content="0; url={{.Next}}">{{end}}
<title>{{if eq .Kind "login"}}Log in{{else if eq .Kind "onwards"}}One moment{{else}}Refused{{end}} · Tallygate</title>
</head>
<body>
<main>
{{if eq .Kind "login"}}<h1>Log in</h1>
{{with .Message}}<p role="alert">{{.}}</p>{{end}}
{{if .Issuer}}<p><a href="/login/start?next={{.Next}}">Log in with single sign-on</a></p>{{end}}
<form method="post" action="/login">
<input type="hidden" name="next" value="{{.Next}}">
<p><label for="token">Token of the aggregator</label><br>
<input id="token" name="token" type="password" required autocomplete="current-password" spellcheck="false"></p>
<p><button>Log in</button></p>
</form>
{{else if eq .Kind "onwards"}}<p><a href="{{.Next}}">Continue</a></p>
{{else}}<h1>Refused</h1>
<p role="alert">{{.Message}}</p>
<p><a href="{{or .Next "/"}}">Continue</a></p>
{{end}}</main>
</body>
</html>
`))
