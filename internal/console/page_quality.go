package console

import (
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/console/rulestats"
	"github.com/tallygate/tallygate/internal/console/rulewatch"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/grouprules"
	"github.com/tallygate/tallygate/rules/document"
)

func qualityPage() page {
	return page{
		name: "quality", path: "/quality", title: "Data quality", nav: "Data quality", least: access.Viewer, load: loadQuality,
		parts: []string{"quality-now"}, every: 3 * time.Second, extra: []string{"rules.css"},
	}
}

// qualityData is the data of the page about events.
type qualityData struct {
	Watch       *rulewatch.State
	Results     table
	Trouble     []troubleData // what is wrong with events that are not dead letters
	Letters     *letters
	LettersNote string
	Unmatched   *table
	Note        string // why Unmatched is not known, or not of all
	Told        int    // how many instances Unmatched is of; 0: one of an older version
	Missing     []api.MissingMember
}

// troubleData is one kind of what looks like a producer's mistake.
type troubleData struct {
	ID, Title, About string
	Table            table
}

// results are the outcomes of events, what they mean, and how they look.
var results = []struct{ Name, About, Tag string }{
	{"counted", "applied to a key; once for each key", "ok"},
	{"unmatched", "no rule counts it", "plain"},
	{"repeat", "its id was counted before", "plain"},
	{"producer_repeat", "a whole record that a producer sent twice", "plain"},
	{"replayed", "seen before the last checkpoint, after a takeover", "plain"},
	{"late", "too late for a window", "warn"},
	{"too_old", "older than max_lateness when it arrived: not counted", "warn"},
	{"no_time", "neither the event nor its record has a time: not counted", "warn"},
	{"unknown_refund", "it takes back an event that no rule remembers", "warn"},
	{"told", "it was denied, and counts nothing: it tells its key's limit", "plain"},
	{"dead_letter", "a malformed record: see below", "bad"},
}

func loadQuality(r *request) (any, error) {
	d := &qualityData{Watch: r.server.rules.watch.State()}
	q := &d.Watch.Quality
	d.Results = resultTable(q.Results, d.Watch.Span)
	d.Trouble = []troubleData{
		ratedTable("mismatches", "Contradictions to the vocabulary", "Events that say what the rule file does not declare: a typing error of a producer, or something new.", q.Mismatches, d.Watch.Span),
		ratedTable("suspects", "Suspects", "Events that count, and look like a mistake. uid_name: no uid, but user, userId or the like. time_name: no time, but timestamp or the like. ip_name: no ip, but client_ip or the like. ip_form: an ip that is no address, such as a list. time_1970: a time in seconds. time_ahead: more than a day ahead.", q.Suspects, d.Watch.Span),
		ratedTable("misplaced", "Misplaced", "Events in another partition than that of their uid: their producer has another partitioner. By the producer's name.", q.Misplaced, d.Watch.Span),
		ratedTable("skips", "Rules that cannot count", "Events that match a rule, and lack what it counts, or have it as something else.", q.Skips, d.Watch.Span),
	}
	if strings.HasPrefix(r.URL.Path, livePath("/")) { // what follows does not change by the second
		return d, nil
	}
	var err error
	if d.Letters, err = r.server.rules.letters.recent(r.ctx(), r.Now); err != nil {
		d.LettersNote = err.Error()
	}
	d.unmatched(r)
	return d, nil
}

func resultTable(rated []rulestats.Rated, span time.Duration) table {
	t := table{Caption: "Events by what became of them", Hidden: true,
		Head:  []column{{Text: "Result"}, {Text: "What it means"}, {Text: "Events/s", Num: true}, {Text: "Since the console began", Num: true}},
		Empty: empty{Title: "No event was seen", Text: "No aggregator has counted one since its start."}}
	for _, known := range results {
		for _, is := range rated {
			if is.Name == known.Name {
				t.Rows = append(t.Rows, row{ID: "result-" + is.Name, Cells: []cell{{Text: is.Name, Head: true, Tag: known.Tag}, {Text: known.About}, rateCell(is.Rate, span), numCell(is.Total)}})
			}
		}
	}
	return t
}

func rateCell(v float64, span time.Duration) cell {
	if span == 0 {
		return cell{Text: dash}
	}
	return cell{Text: rate(v)}
}

// shownRated bounds the rows of such a table.
const shownRated = 50

func ratedTable(id, title, about string, rated []rulestats.Rated, span time.Duration) troubleData {
	t := troubleData{ID: id, Title: title, About: about, Table: table{Caption: title, Hidden: true, Empty: empty{Title: "None"}}}
	t.Table.Head = []column{{Text: "What"}, {Text: "Events/s", Num: true}, {Text: "Since the console began", Num: true}}
	for i, is := range rated {
		if i == shownRated {
			break
		}
		name := cell{Text: words.Cell(is.Name, 80), Head: true, Code: true}
		switch {
		case id == "skips":
			name.Note = "by " + is.What
			name.Link, name.Code = "/rules/"+rulestats.RuleOf(is.What), false
		case is.What != "":
			name.Note = is.What
		}
		t.Table.Rows = append(t.Table.Rows, row{Cells: []cell{name, rateCell(is.Rate, span), numCell(is.Total)}})
	}
	return t
}

// Quiet reports whether nothing is wrong.
func (t *troubleData) Quiet() bool { return len(t.Table.Rows) == 0 }

// unmatched asks what events say that no rule counts, and guesses what was meant.
func (d *qualityData) unmatched(r *request) {
	is, err := r.API.Unmatched(r.ctx())
	if err != nil {
		d.Note = "The aggregator does not tell: " + err.Error()
		return
	}
	var known []string
	if running, err := r.running(); err == nil {
		known = grouprules.APIs(running.Source)
	}
	t := &table{Caption: "APIs and outcomes that no rule counts", Hidden: true,
		Head:  []column{{Text: "API"}, {Text: "Outcome"}, {Text: "Events", Num: true}, {Text: "Meant?"}},
		Empty: empty{Title: "Every event is counted by a rule", Text: "Or no event has come since the aggregator began."}}
	for _, u := range is.Unmatched {
		meant := cell{Text: dash}
		if u.NoUID && slices.Contains(known, u.API) {
			meant = cell{Text: "these have no uid: rules by user pass them over"}
		} else if slices.Contains(known, u.API) {
			meant = cell{Text: "rules count this API, with other outcomes or attributes"}
		} else if guess := document.DidYouMean(u.API, known); guess != "" {
			meant = cell{Text: strings.TrimPrefix(guess, "; ")}
		}
		t.Rows = append(t.Rows, row{Cells: []cell{{Text: words.Cell(u.API, 64), Head: true, Code: true}, textCell(words.Cell(u.Outcome, 64)), numCell(u.Events), meant}})
	}
	d.Unmatched, d.Told, d.Missing = t, is.Instances, is.Missing
	if is.Trouble != nil {
		d.Note = "Kafka does not say who is in the group, so an instance may be left out: " + is.Trouble.Error
	}
}
