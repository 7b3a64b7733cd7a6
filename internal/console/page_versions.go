package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/console/diff"
	"github.com/tallygate/tallygate/internal/console/rulewatch"
	"github.com/tallygate/tallygate/internal/run/access"
)

func versionsPage() page {
	return page{name: "versions", path: "/versions", title: "Versions of the rules", under: "rules", least: access.Viewer, load: loadVersions, extra: []string{"rules.css"}}
}

func diffPage() page {
	return page{name: "diff", path: "/versions/diff", title: "What differs", under: "rules", least: access.Viewer, load: loadDiff, extra: []string{"rules.css"}}
}

// backPage rolls back. Those who may not see what it would do, and that they may not.
func backPage() page {
	return page{name: "back", path: "/versions/back", title: "Roll back", under: "rules", least: access.Viewer, load: loadBack, extra: []string{"rules.css"},
		actions: map[string]action{"back": {least: access.Admin, do: rollBack}}}
}

// versionsPerPage bounds the versions that the list asks for at once.
const versionsPerPage = 50

// versionsData is the data of the list of versions.
type versionsData struct {
	api.RuleVersions
	Running int64
	Next    string // the address of older ones; "": there are none
	First   bool   // the newest are among them
}

func loadVersions(r *request) (any, error) {
	q := url.Values{"limit": {strconv.Itoa(versionsPerPage)}}
	before := r.query().Get("before")
	if before != "" {
		if _, err := versionNumber("before", before); err != nil {
			return nil, err
		}
		q.Set("before", before)
	}
	list, err := r.API.RuleVersions(r.ctx(), q)
	if err != nil {
		return nil, err
	}
	d := &versionsData{RuleVersions: *list, Running: r.server.rules.watch.Book.Running(), First: before == ""}
	if n := len(d.Versions); n > 0 {
		if d.Running == 0 && d.First {
			d.Running = d.Versions[0].Version
		}
		if d.More {
			d.Next = "/versions?before=" + strconv.FormatInt(d.Versions[n-1].Version, 10)
		}
	}
	return d, nil
}

// Who published a version.
func (*versionsData) Who(v api.RuleVersion) string { return rulewatch.Who(v.By, v.OnBehalfOf) }

// Previous is the version before the i-th of the list; 0 if it is not in it.
func (d *versionsData) Previous(i int) int64 {
	if i+1 < len(d.Versions) {
		return d.Versions[i+1].Version
	}
	return 0
}

// versionNumber reads a version in an address or a form.
func versionNumber(name, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, &Problem{Status: http.StatusBadRequest, Title: "This is no version", Detail: fmt.Sprintf("%s is %.40q; a version is a number from 1.", name, text), Do: "Choose versions from the list.", Link: "/versions"}
	}
	return n, nil
}

// diffData is the difference of two versions.
type diffData struct {
	From, To       *rulewatch.Opened
	Lines          []diff.Line
	Pairs          []diff.Pair // instead of Lines
	Added, Removed int
	Means          diff.Meaning
	Running        int64
	Sides          bool
	Other          string // the address of the other view
	Swap           string // and of the other direction
}

func loadDiff(r *request) (any, error) {
	from, err := versionNumber("from", r.query().Get("from"))
	if err != nil {
		return nil, err
	}
	to, err := versionNumber("to", r.query().Get("to"))
	if err != nil {
		return nil, err
	}
	return r.diffOf(from, to, r.query().Get("view") == "sides")
}

// diffOf compares two versions.
func (r *request) diffOf(from, to int64, sides bool) (*diffData, error) {
	d := &diffData{Running: r.server.rules.watch.Book.Running(), Sides: sides}
	var err error
	if d.From, err = r.version(from); err != nil {
		return nil, err
	}
	if d.To, err = r.version(to); err != nil {
		return nil, err
	}
	r.Title = fmt.Sprintf("Versions %d and %d", from, to)
	d.Lines = diff.Unified(d.From.Source, d.To.Source)
	d.Added, d.Removed = diff.Count(d.Lines)
	d.Means = diff.CompareOpened(d.From.Rules, d.From.Set, d.To.Rules, d.To.Set)
	address := func(from, to int64, sides bool) string {
		q := url.Values{"from": {strconv.FormatInt(from, 10)}, "to": {strconv.FormatInt(to, 10)}}
		if sides {
			q.Set("view", "sides")
		}
		return "/versions/diff?" + q.Encode()
	}
	d.Other, d.Swap = address(from, to, !sides), address(to, from, sides)
	if sides {
		d.Pairs = diff.SideBySide(d.Lines)
	}
	return d, nil
}

// backData is the preview of a roll back.
type backData struct {
	*diffData
	Version int64 // the one whose text is to run again
	May     bool
}

func loadBack(r *request) (any, error) {
	version, err := versionNumber("version", r.query().Get("version"))
	if err != nil {
		return nil, err
	}
	running, err := r.running()
	if err != nil {
		return nil, err
	}
	d := &backData{Version: version, May: r.may(access.Admin)}
	if d.diffData, err = r.diffOf(running.Version, version, false); err != nil {
		return nil, err
	}
	r.Title = fmt.Sprintf("Roll back to version %d", version)
	return d, nil
}

// rollBack publishes the text of an older version again, with the reader's own credential. The form names the
// version that its preview was of: should another one run by now, the preview was of something else.
func rollBack(r *request) (result, error) {
	version, err := versionNumber("version", r.PostForm.Get("version"))
	if err != nil {
		return result{}, err
	}
	seen, err := versionNumber("seen", r.PostForm.Get("seen"))
	if err != nil {
		return result{}, err
	}
	reason := strings.TrimSpace(r.PostForm.Get("reason"))
	if reason == "" {
		return result{}, &Problem{Status: http.StatusBadRequest, Title: "The reason is missing", Detail: "It is for the audit, and for those who look at the versions later.", Do: "Write why, such as the number of a ticket."}
	}
	if running := r.server.rules.watch.Book.Running(); running != 0 && running != seen {
		return result{}, &Problem{Status: http.StatusConflict, Title: "Other rules run by now", Detail: fmt.Sprintf("The preview compared with version %d, and version %d runs.", seen, running), Do: "Look at what differs now, and send the form again."}
	}
	done, err := r.API.Rollback(r.ctx(), api.Rollback{Version: version, Reason: reason})
	if err != nil {
		return result{}, err
	}
	if !done.Changed {
		return result{Text: fmt.Sprintf("Version %d has that text already: nothing was changed.", done.Version), To: "/versions"}, nil
	}
	r.server.rules.watch.Round(r.server.base) // else the list would show for a moment that the former version runs
	said := fmt.Sprintf("Version %d runs, with the text of version %d.", done.Version, version)
	if r.server.rules.watch.Book.Running() < done.Version {
		said = fmt.Sprintf("Version %d is published, with the text of version %d: the aggregators run it within seconds.", done.Version, version)
	}
	return result{Text: said + " Take it into the rule file, too: its next change would bring the other text back.", To: "/versions"}, nil
}
