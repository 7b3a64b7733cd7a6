package console

import (
	"errors"
	"html/template"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/console/chart"
	"github.com/tallygate/tallygate/internal/console/rulestats"
	"github.com/tallygate/tallygate/internal/console/rulewatch"
	"github.com/tallygate/tallygate/internal/console/rulewords"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/rules"
)

func rulePage() page {
	return page{
		name: "rule", path: "/rules/{name}", title: "Rule", under: "rules", least: access.Viewer, load: loadRule,
		parts: []string{"rule-now", "rule-counts"}, every: 5 * time.Second, extra: []string{"rules.css"},
	}
}

// ruleData is the data of a rule's page.
type ruleData struct {
	Name, Mode, Key, Then string
	Rule                  *rules.Rule
	Limits                []string
	Fuse                  string
	Version               *rulewatch.Opened
	Watch                 *rulewatch.State
	Fares                 rulestats.Rule
	YAML                  yamlData
	Changes               []rulewatch.Change
	Counts                []countsData
	CountsNote            string // why there are none, or not all
	At                    string // what was typed
	TopKeys, Pardons      *table
}

// yamlData is text with the numbers of its lines.
type yamlData struct {
	Label string
	From  int
	Lines []string
}

func loadRule(r *request) (any, error) {
	running, err := r.running()
	if err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	rule := running.Rule(name)
	if rule == nil {
		return nil, noSuchRule(name, running.Version)
	}
	r.Title = "Rule " + name
	watch := r.server.rules.watch
	d := &ruleData{
		Name: name, Mode: rulewords.Mode(rule), Key: rulewords.Key(rule), Then: rulewords.Then(rule), Rule: rule, Limits: rulewords.Limits(rule),
		Version: running, Watch: watch.State(), Changes: watch.Book.Changes(name), At: strings.TrimSpace(r.query().Get("at")),
	}
	d.Fares = fares(d.Watch, name, r.inForce())
	if rule.Fuse > 0 {
		d.Fuse = percent(float64(rule.Fuse) / 1e6)
	}
	if part, ok := running.Parts.Rules[name]; ok {
		d.YAML = yamlData{"The rule's text", part.From, strings.Split(part.Text, "\n")}
	}
	d.counts(r)
	d.TopKeys, d.Pardons = r.topKeys(name), r.pardons(name)
	return d, nil
}

// countsData is the distribution of the counts under one limit.
type countsData struct {
	Name             string // of the limit; "" of the only one
	Number           string
	Keys, Over, Near int
	Chart            template.HTML
	What             *whatIf
}

// whatIf counts the keys above another number.
type whatIf struct {
	At          string
	More, Fewer int
	About       bool // the number lies within a bucket: it is an estimate
	Wrong       string
}

// counts asks how many keys have which count. Without an answer the page stands, and says why.
func (d *ruleData) counts(r *request) {
	is, err := r.API.Distribution(r.ctx(), d.Name)
	if refused, ok := errors.AsType[*api.Refusal](err); ok && refused.Status == http.StatusNotFound {
		d.CountsNote = "The aggregator does not tell: " + refused.Detail
		return
	}
	if err != nil {
		d.CountsNote = "The counts cannot be read now: " + err.Error()
		return
	}
	if len(is.Missing) > 0 {
		d.CountsNote = plural(len(is.Missing), "partition") + " did not answer, whose keys are missing here: " + is.Missing[0].Reason
	} else if is.Sampled {
		d.CountsNote = "There are many keys: the numbers are estimated from a sample."
	}
	for i := range is.Limits {
		l := &is.Limits[i]
		c := countsData{Name: l.Limit, Keys: l.Keys, Over: l.Over, Near: l.Near}
		h := chart.Histogram{Title: "How many keys have which count"}
		if l.Limit != "" {
			h.Title += " under " + l.Limit
		}
		if l.Number != nil {
			c.Number = l.Number.String()
			h.Limit, h.LimitText = toFloat(c.Number), c.Number
		}
		for _, b := range l.Buckets {
			from, to := b.From.String(), b.To.String()
			h.Buckets = append(h.Buckets, chart.Bucket{From: toFloat(from), To: toFloat(to), FromText: from, ToText: to, Keys: b.Keys})
		}
		if len(h.Buckets) > 0 {
			c.Chart = h.Draw()
		}
		if d.At != "" && l.Number != nil {
			c.What = whatIfAt(d.At, h.Limit, h.Buckets)
		}
		d.Counts = append(d.Counts, c)
	}
}

func toFloat(text string) float64 {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return f
}

// whatIfAt compares the keys above another number with those above the limit.
func whatIfAt(text string, limit float64, buckets []chart.Bucket) *whatIf {
	at, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", "."), 64)
	if err != nil || at < 0 || math.IsInf(at, 0) || math.IsNaN(at) {
		return &whatIf{At: text, Wrong: "write a number, such as 80"}
	}
	w := &whatIf{At: strconv.FormatFloat(at, 'f', -1, 64)}
	now, about := above(limit, buckets)
	then, alsoAbout := above(at, buckets)
	w.About = about || alsoAbout
	w.More, w.Fewer = max(then-now, 0), max(now-then, 0)
	return w
}

// above counts the keys with a count of at least a number. Within a bucket they are taken to lie evenly.
func above(at float64, buckets []chart.Bucket) (keys int, about bool) {
	sum := 0.0
	for _, b := range buckets {
		switch {
		case b.From >= at:
			sum += float64(b.Keys)
		case b.To > at && b.To > b.From:
			sum += float64(b.Keys) * (b.To - at) / (b.To - b.From)
			about = about || b.Keys > 0
		}
	}
	return int(math.Round(sum)), about
}

// shownChanges bounds a rule's changes on its page.
const shownChanges = 20

// Shown are the latest changes.
func (d *ruleData) Shown() []rulewatch.Change { return d.Changes[:min(len(d.Changes), shownChanges)] }

// Before is the version before a change, to compare with; 0 if that is not known.
func (d *ruleData) Before(version int64) int64 {
	i := slices.Index(d.Watch.Listed, version)
	if i < 0 || i+1 == len(d.Watch.Listed) {
		return 0
	}
	return d.Watch.Listed[i+1]
}
