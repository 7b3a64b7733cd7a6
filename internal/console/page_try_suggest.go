package console

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net/http"

	"github.com/tallygate/tallygate/internal/console/workbench"
	"github.com/tallygate/tallygate/internal/run/rulecheck"
	"github.com/tallygate/tallygate/internal/tools/suggest"
)

// suggestShares are the choices of how many keys, or events, a suggested limit may hit.
var suggestShares = []string{"1%", "0.1%", "0.01%"}

// Shares are the choices.
func (*tryData) Shares() []string { return suggestShares }

// wishOf reads the reader's choice; a share that is none of them becomes the default, as with spans.
func wishOf(r *request) suggest.Wish {
	wish := suggest.DefaultWish
	for _, share := range suggestShares {
		if r.PostFormValue("share") == share {
			wish.Share = share
		}
	}
	wish.Events = r.PostFormValue("of") == "events"
	return wish
}

func trySuggest(r *request) (any, error) {
	d, err := r.tryData()
	if err != nil {
		return nil, err
	}
	return d, r.suggest(r.ctx(), d, func(workbench.Progress) {})
}

// suggest finds numbers for the limits of the text that have none.
func (r *request) suggest(ctx context.Context, d *tryData, progress func(workbench.Progress)) error {
	got, err := r.server.rules.bench.Suggest(ctx, askOf(r, d), d.Wish, progress)
	if err != nil {
		return refused(err)
	}
	if got.Mistakes != nil {
		d.Checked = &rulecheck.Result{File: workbench.RulesFile, Errors: got.Mistakes}
		return nil
	}
	d.Suggested = got
	d.Download, err = downloadOf(got)
	return err
}

// askOf asks for the events of the chosen span, to be counted by the text.
func askOf(r *request, d *tryData) *workbench.Ask {
	span := spans[0].Length
	for _, s := range spans {
		if s.Name == d.Span {
			span = s.Length
		}
	}
	return &workbench.Ask{Reader: r.Who.Name, Text: d.Text, From: r.Now.Add(-span), Published: d.Running.Rules}
}

// downloadOf is a link that has a result in it, so that nothing is kept here.
func downloadOf(result any) (template.URL, error) {
	text, err := json.MarshalIndent(result, "", " ")
	if err != nil {
		return "", err
	}
	return template.URL("data:application/json;base64," + base64.StdEncoding.EncodeToString(text)), nil //nolint:gosec // base64
}

func suggestLive(r *request, w http.ResponseWriter) { live(r, w, (*request).suggest) }
