package console

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/verdict"
)

func keySearchPage() page {
	return page{
		name: "key-search", path: "/key", title: "One key", nav: "Key", least: access.Viewer,
		load:    func(r *request) (any, error) { _, err := r.keys(); return nil, err },
		actions: map[string]action{"search": {least: access.Viewer, do: searchKey}},
	}
}

// searchKey leads to the page of the key that was typed.
func searchKey(r *request) (result, error) {
	k, err := r.keys()
	if err != nil {
		return result{}, err
	}
	key, err := parseKey(r.PostForm.Get("key"))
	if err != nil {
		return result{}, err
	}
	shown, err := r.reveal(k, key, "explain", strings.TrimSpace(r.PostForm.Get("ticket")))
	if err != nil {
		return result{}, err
	}
	done := result{To: keyPath(k, key)}
	if shown != nil {
		done.cookies = append(done.cookies, shown)
	}
	return done, nil
}

func keyPage() page {
	return page{
		name: "key", path: "/key/{ref}", title: "One key", under: "key-search", least: access.Viewer,
		load:    loadKey,
		actions: map[string]action{"show": {least: access.Operator, do: showKey}},
	}
}

// showKey shows a masked key to an operator, and says so in the audit.
func showKey(r *request) (result, error) {
	k, err := r.keys()
	if err != nil {
		return result{}, err
	}
	key, err := r.keyOf(k)
	if err != nil {
		return result{}, err
	}
	shown, err := r.reveal(k, key, "show", strings.TrimSpace(r.PostForm.Get("reason")))
	if err != nil {
		return result{}, err
	}
	done := result{Text: "The key is shown to you for half an hour. That is in the audit."}
	if shown != nil {
		done.cookies = append(done.cookies, shown)
	}
	return done, nil
}

// keyView is the data of a key's page.
type keyView struct {
	Text    string
	Open    bool
	CanShow bool
	Path    string
	Wrong   *Problem // why the aggregator does not tell where the key stands; nil: it does

	Known      bool // a rule counts it
	Never      bool // none has counted an event of it
	Standings  []keyStanding
	More       int
	Missing    []api.MissingPartition
	Strict     string
	Exemptions table
	Blocked    int      // verdicts in force that are enforced
	Denials    []string // strict limits that grant no permit
	InDoubt    bool     // strict limits grant nobody one

	Why   string // in one sentence; "": it is not blocked
	At    string // the moment that was asked for, as it was typed
	WhyAt string

	API       string
	Enforcers table
	NoAnswer  string // why the enforcers cannot be listed

	Timeline timeline
	Acts     []actLink
	Undo     []undoOffer
}

func loadKey(r *request) (any, error) {
	k, err := r.keys()
	if err != nil {
		return nil, err
	}
	key, err := r.keyOf(k)
	if err != nil {
		return nil, err
	}
	e := r.eyesOf(k, key)
	v := &keyView{Text: e.text(key), Open: e.open(key), Path: e.path(key), API: strings.TrimSpace(r.query().Get("api"))}
	v.CanShow = !v.Open && r.may(access.Operator)
	r.Title = v.Text
	a, err := r.explain(key)
	if err != nil {
		v.Wrong, a = problemOf(err), &explained{}
	}
	v.fill(r, e, a)
	v.Timeline = e.timeline(key, limitsOf(a), r.Now)
	if err := v.fillAt(r, e); err != nil {
		return nil, err
	}
	v.askEnforcers(r.ctx(), k, key, a.inForce())
	v.Undo = r.undoOffers(e, key, &v.Timeline)
	return v, nil
}

// askEnforcers asks about the API that the reader chose, or that what is or was in force covers.
func (v *keyView) askEnforcers(ctx context.Context, k *Keys, key []event.Dim, list []verdict.Verdict) {
	if v.API == "" {
		v.API = cmp.Or(apiFor(list), apiFor(v.Timeline.verdicts()))
	}
	if v.API == "" {
		v.NoAnswer = "Nothing is or was in force that says which API to ask about: name one."
		return
	}
	expected := false
	for i := range list {
		expected = expected || list[i].Decides() && list[i].Covers(v.API) && sameKey(list[i].Key, key)
	}
	checks, err := k.enforcers(ctx, key, v.API, expected)
	if err != nil {
		v.NoAnswer = "Redis does not answer, so it is not known which enforcers there are: " + reasonOf(err)
	}
	v.Enforcers = checksOf(checks)
}

// sameKey reports whether a verdict's key has no more dimensions than the one that enforcers are asked about.
func sameKey(of, key []event.Dim) bool { return len(of) <= len(key) }

// fill shows what the aggregator says.
func (v *keyView) fill(r *request, e *eyes, a *explained) {
	v.Never = a.never()
	v.Known, v.More, v.Missing, v.Strict = a.known(), a.More, a.Missing, strictState(a.Strict)
	if len(a.Rules) > 0 {
		v.Standings = append(v.Standings, e.standing(a, r.Now))
	}
	for i := range a.Others {
		v.Standings = append(v.Standings, e.standing((*explained)(&a.Others[i]), r.Now))
	}
	list := a.inForce()
	for i := range list {
		if list[i].Decides() {
			v.Blocked++
		}
	}
	v.Denials, _ = a.denials()
	v.InDoubt = a.doubt() != nil
	v.Why = e.why(a)
	v.Exemptions = e.exemptionTable(a.exemptions(), r.Now, r.may(access.Operator))
	v.Acts = r.actLinks(v.Path, a)
}

// fillAt says why the key was blocked at a moment that the reader chose.
func (v *keyView) fillAt(r *request, e *eyes) error {
	if v.At = strings.TrimSpace(r.query().Get("at")); v.At == "" {
		return nil
	}
	at, err := parseMoment(v.At, r.Now)
	if err != nil {
		return err
	}
	if v.WhyAt = e.whyAt(&v.Timeline, event.FromTime(at)); v.WhyAt == "" {
		v.WhyAt = fmt.Sprintf("At %s UTC no verdict was in force for %s, as far as the audit is read (%s). Permits that strict limits deny are in no audit.", at.UTC().Format("2006-01-02 15:04:05"), v.Text, strings.ToLower(v.Timeline.Source.Text[:1])+strings.TrimSuffix(v.Timeline.Source.Text[1:], "."))
	}
	return nil
}

func limitsOf(a *explained) (names []string) {
	for i := range a.Rules {
		names = append(names, a.Rules[i].Rule)
	}
	for i := range a.Others {
		names = append(names, limitsOf((*explained)(&a.Others[i]))...)
	}
	return names
}

// parseMoment reads a time, or a span back from now: 90m, 36h or 7d.
func parseMoment(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), nil
		}
	}
	if d, err := parseSpan(text); err == nil {
		return now.Add(-d), nil
	}
	return time.Time{}, &Problem{Status: 400, Title: "This is not a time", Detail: fmt.Sprintf("%.40q cannot be read as a moment.", text),
		Do: "Write a time in UTC, such as 2026-11-24 14:03, or a span back, such as 90m, 36h or 7d."}
}

// actLink leads to the form of an action.
type actLink struct{ Text, Path, Class string }

// actLinks are those that the reader may do, as far as the console knows: the aggregator decides.
func (r *request) actLinks(path string, a *explained) (links []actLink) {
	if !r.may(access.Operator) {
		return nil
	}
	if len(a.inForce()) > 0 {
		links = append(links, actLink{"Unblock …", path + "/unblock", "primary"})
	}
	reset := "quiet"
	if denials, _ := a.denials(); len(denials) > 0 { // nothing else lets it in again
		reset = "primary"
	}
	links = append(links, actLink{"Block …", path + "/block", "quiet"}, actLink{"Exempt …", path + "/exempt", "quiet"}, actLink{"Reset counts …", path + "/reset", reset})
	if r.may(access.Admin) {
		links = append(links, actLink{"Erase …", path + "/erase", "danger"})
	}
	return links
}

// withQuery is a path with parameters.
func withQuery(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}
