package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/console/diff"
	"github.com/tallygate/tallygate/internal/console/rulewatch"
	"github.com/tallygate/tallygate/internal/console/workbench"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/rulecheck"
	"github.com/tallygate/tallygate/internal/tools/suggest"
)

func tryPage() page {
	return page{
		name: "try", path: "/try", title: "Try a change of the rules", under: "rules", least: access.Viewer, load: loadTry, extra: []string{"rules.css", "try.js"},
		actions: map[string]action{
			"check":        {least: access.Viewer, show: tryCheck},
			"check-part":   {least: access.Viewer, raw: checkPart},
			"test":         {least: access.Viewer, show: tryTest},
			"replay":       {least: access.Operator, show: tryReplay},
			"replay-live":  {least: access.Operator, raw: replayLive},
			"suggest":      {least: access.Operator, show: trySuggest},
			"suggest-live": {least: access.Operator, raw: suggestLive},
			"download":     {least: access.Viewer, raw: downloadText},
		},
	}
}

// spans are the choices of how far back a replay begins.
var spans = []struct {
	Name, Text string
	Length     time.Duration
}{{"1h", "the last hour", time.Hour}, {"24h", "the last 24 hours", 24 * time.Hour}}

// sampleTests are shown in the place of tests.
const sampleTests = `rule_files: [rules.yaml]
tests:
  - name: ten pass, the eleventh does not
    events:
      - {at: 0s, uid: u1, api: search.query, times: 11, every: 1s}
    expect:
      - {at: 11s, uid: u1, api: search.query, verdict: block}
`

// tryData is the data of the page Try a change.
type tryData struct {
	Running     *rulewatch.Opened
	Text, Tests string
	Span        string
	May         bool   // replay
	Line        int    // where the rule begins that the page was opened for
	Rule        string // that one
	Checked     *rulecheck.Result
	Means       *diff.Meaning // of a valid text, against the running rules
	Same        bool          // it is the running text
	Ran         *workbench.Tests
	Replayed    *workbench.Replayed
	Wish        suggest.Wish
	Suggested   *workbench.Suggested
	Download    template.URL // of the replay's result, or of the suggestions
	SampleTests string
}

// Spans are the choices.
func (*tryData) Spans() any { return spans }

func loadTry(r *request) (any, error) {
	d, err := r.tryData()
	if err != nil {
		return nil, err
	}
	if r.Method == http.MethodPost { // it is shown again, with what is wrong
		return d, nil
	}
	d.Text = d.Running.Source
	if part, ok := d.Running.Parts.Rules[r.query().Get("rule")]; ok {
		d.Line, d.Rule = part.From, r.query().Get("rule")
	}
	return d, nil
}

// tryData reads the form, if it was sent.
func (r *request) tryData() (*tryData, error) {
	running, err := r.running()
	if err != nil {
		return nil, err
	}
	d := &tryData{Running: running, May: r.may(access.Operator), Span: r.PostFormValue("span"), SampleTests: sampleTests}
	d.Wish = wishOf(r)
	d.Text, d.Tests = typed(r.PostFormValue("rules")), typed(r.PostFormValue("tests"))
	return d, nil
}

// typed is the text of an area: browsers end its lines with CR LF.
func typed(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// refused turns what a bench refuses into what people read.
func refused(err error) error {
	is, ok := errors.AsType[*workbench.Refusal](err)
	switch {
	case !ok:
		return err
	case is.Busy:
		return &Problem{Status: http.StatusTooManyRequests, Title: "Not now", Detail: is.Detail, Do: "Try again in a moment."}
	}
	return &Problem{Status: http.StatusBadRequest, Title: "This cannot be tried here", Detail: is.Detail, Do: "Use the command line: tallygate check, test and replay have no such bounds."}
}

func tryCheck(r *request) (any, error) {
	d, err := r.tryData()
	if err != nil {
		return nil, err
	}
	return d, r.check(d)
}

// check explains the mistakes of the text, and of a valid one its effect.
func (r *request) check(d *tryData) error {
	result, set, err := r.server.rules.bench.Check(r.ctx(), d.Text, d.Running.Rules)
	if err != nil {
		return refused(err)
	}
	d.Checked, d.Same = &result, d.Text == d.Running.Source
	if set != nil && d.Running.Set != nil && !d.Same {
		means := diff.CompareOpened(d.Running.Rules, d.Running.Set, &api.Rules{RuleRecord: api.RuleRecord{Source: d.Text, Files: set.Files}}, set)
		d.Means = &means
	}
	return nil
}

// checkPart is check for a script, while somebody types.
func checkPart(r *request, w http.ResponseWriter) {
	d, err := r.tryData()
	if err == nil {
		err = r.check(d)
	}
	if err != nil {
		p := problemOf(err)
		w.WriteHeader(p.Status)
		_, _ = w.Write([]byte(p.Error()))
		return
	}
	r.part(w, "try-check", d)
}

// part answers with a part of the page.
func (r *request) part(w http.ResponseWriter, name string, d *tryData) {
	text, err := r.render(name, d)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(text)
}

func (r *request) render(part string, d *tryData) ([]byte, error) {
	var b bytes.Buffer
	err := r.server.looks["try"].ExecuteTemplate(&b, part, &view{Name: "try", Who: r.Who, Now: r.Now, Data: d})
	return b.Bytes(), err
}

func tryTest(r *request) (any, error) {
	d, err := r.tryData()
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(d.Tests) == "" {
		return nil, &Problem{Status: http.StatusBadRequest, Title: "There are no tests", Detail: "The field for tests is empty.", Do: "Paste the file of tests that lies beside your rule file, or begin with the sample."}
	}
	d.Ran, err = r.server.rules.bench.Test(r.ctx(), d.Text, d.Tests, d.Running.Rules)
	if err != nil {
		return nil, refused(err)
	}
	return d, nil
}

func tryReplay(r *request) (any, error) {
	d, err := r.tryData()
	if err != nil {
		return nil, err
	}
	return d, r.replay(r.ctx(), d, func(workbench.Progress) {})
}

func (r *request) replay(ctx context.Context, d *tryData, progress func(workbench.Progress)) error {
	got, err := r.server.rules.bench.Replay(ctx, askOf(r, d), progress)
	if err != nil {
		return refused(err)
	}
	if got.Mistakes != nil {
		d.Checked = &rulecheck.Result{File: workbench.RulesFile, Errors: got.Mistakes}
		return nil
	}
	d.Replayed = got
	d.Download, err = downloadOf(got)
	return err
}

// stallWithin is the time after which a reader who takes nothing of a replay has left.
const stallWithin = 10 * time.Second

func replayLive(r *request, w http.ResponseWriter) { live(r, w, (*request).replay) }

// live is a replay, or a search for numbers, for a script: server-sent events progress, then result, a part of the
// page, or trouble. A reader who leaves ends it.
func live(r *request, w http.ResponseWriter, run func(*request, context.Context, *tryData, func(workbench.Progress)) error) {
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	say := func(event string, text []byte) {
		var b bytes.Buffer
		writeEvent(&b, event, string(text))
		_ = out.SetWriteDeadline(time.Now().Add(stallWithin))
		if _, err := w.Write(b.Bytes()); err == nil {
			_ = out.Flush() // the request's context ends with the reader
		}
	}
	d, err := r.tryData()
	if err == nil {
		ctx, cancel := context.WithCancel(r.ctx())
		defer context.AfterFunc(r.server.base, cancel)() // the program stops
		defer cancel()
		err = run(r, ctx, d, func(p workbench.Progress) {
			text, err := json.Marshal(p)
			if err == nil {
				say("progress", text)
			}
		})
	}
	var part []byte
	if err == nil {
		part, err = r.render("try-result", d)
	}
	if err != nil {
		say("trouble", []byte(problemOf(err).Error()))
		return
	}
	say("result", part)
}

// downloadText gives the text back as a file.
func downloadText(r *request, w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/yaml; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="rules.yaml"`)
	_, _ = w.Write([]byte(typed(r.PostFormValue("rules"))))
}
