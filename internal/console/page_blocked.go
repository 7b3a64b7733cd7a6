package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/console/blocks"
	"github.com/tallygate/tallygate/internal/console/chart"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/verdict"
)

func blockedPage() page {
	return page{
		name: "blocked", path: "/blocked", title: "Who is blocked", nav: "Blocked", least: access.Viewer,
		load: loadBlocked, parts: []string{"blocked-source"}, every: 2 * time.Second,
		actions: map[string]action{"search": {least: access.Viewer, do: searchBlocked}},
	}
}

// blockedView is the data of the page Blocked.
type blockedView struct {
	Source  source
	Query   url.Values // without after
	Key     string     // that is searched for, as the reader sees it; "" is any
	Open    bool       // it is shown as it is
	KeyPath string
	Found   int
	All     int
	Table   table
	Rules   table
	Names   []string // of rules, for the filter
	Dims    []string
	First   string // the first page; "" is this one
	Next    string
	Export  string // "": the reader may not
}

// source says from what a list of verdicts is read, and how good that is.
type source struct {
	Level    string // ok, warn or bad
	Text, Do string
}

// blocklistSource is the blocklist in Redis, as this console follows it.
func (k *Keys) blocklistSource() source {
	h := k.list.Health()
	refused := k.feed.Refused()
	switch {
	case !h.Ready && refused != nil:
		return source{"bad", "The blocklist in Redis cannot be followed: " + refused.Error(), "The list is empty until it can. The overview says more."}
	case !h.Ready:
		return source{"warn", "The blocklist in Redis has not been read yet.", "If it stays so, Redis does not answer: the overview says why."}
	case h.Staleness > staleAfter:
		return source{"bad", fmt.Sprintf("From the blocklist in Redis as it was %s ago: nothing has come since.", span(h.Staleness)), "Redis, or what writes into it, does not work: the overview says which."}
	case h.LeftOut > 0:
		return source{"warn", fmt.Sprintf("From the blocklist in Redis, without %d verdicts for which there is no room.", h.LeftOut), "The enforcers have all of them."}
	}
	return source{"ok", "From the blocklist in Redis, which is up to date.", ""}
}

// staleAfter is longer than the time between two heartbeats.
const staleAfter = 5 * time.Second

// blockedPageSize is the number of rows of a page.
const blockedPageSize = 100

// blockedQuery reads the parameters; key is what is searched for.
func (r *request) blockedQuery(k *Keys) (q blocks.Query, key []event.Dim, err error) {
	v := r.query()
	q = blocks.Query{Rule: v.Get("rule"), Kind: v.Get("mode"), Action: v.Get("action"), Dim: v.Get("dim"), Sort: v.Get("sort"), Limit: blockedPageSize}
	if v.Get("ends") != "" {
		q.EndsWithin = time.Hour
	}
	if ref := v.Get("key"); ref != "" {
		if key, err = k.refs.Key(ref); err != nil {
			return q, nil, &Problem{Status: http.StatusNotFound, Title: "This link names no key", Detail: err.Error(), Do: "Search for the key again.", Link: "/blocked"}
		}
		q.Key = key
	}
	if after := v.Get("after"); after != "" {
		text, err := k.refs.Unseal("blocked", after)
		if err != nil {
			return q, nil, &Problem{Status: http.StatusNotFound, Title: "There is no such page", Detail: "The place in the address was not made by this console.", Do: "Begin at the first page.", Link: "/blocked"}
		}
		q.After = string(text)
	}
	return q, key, nil
}

func loadBlocked(r *request) (any, error) {
	k, err := r.keys()
	if err != nil {
		return nil, err
	}
	q, key, err := r.blockedQuery(k)
	if err != nil {
		return nil, err
	}
	p, err := k.list.Page(q)
	if err != nil {
		return nil, &Problem{Status: http.StatusBadRequest, Title: "The filter is not valid", Detail: err.Error(), Do: "Choose from the form.", Link: "/blocked"}
	}
	eyes := r.eyesOf(k, key)
	v := &blockedView{Source: k.blocklistSource(), Query: r.query(), Found: p.Found, All: p.All, Table: r.blockedTable(eyes, &p, &q), Dims: []string{"uid", "ip", "ip/24", "ip/64", "api"}}
	first := v.Query.Get("after") != ""
	v.Query.Del("after")
	if len(key) > 0 {
		v.Key, v.Open, v.KeyPath = eyes.text(key), eyes.open(key), eyes.path(key)
	}
	if first {
		v.First = "/blocked?" + v.Query.Encode()
	}
	if p.Next != "" {
		next := url.Values{"after": {k.refs.Seal("blocked", []byte(p.Next))}}
		v.Next = "/blocked?" + strings.TrimPrefix(v.Query.Encode()+"&", "&") + next.Encode()
	}
	if r.may(access.Operator) {
		v.Export = "/blocked/export.csv?" + v.Query.Encode()
	}
	v.Rules = ruleTable(p.ByRule, q.Rule)
	for _, c := range p.ByRule {
		v.Names = append(v.Names, c.Rule)
	}
	return v, nil
}

func (r *request) blockedTable(e *eyes, p *blocks.Page, q *blocks.Query) table {
	t := table{
		Caption: "Keys with a verdict in force", Hidden: true,
		Head:  []column{{Text: "Key"}, {Text: "Rule"}, {Text: "Mode"}, {Text: "Action"}, {Text: "Since"}, {Text: "Until"}, {Text: "Count of limit"}, {Text: "By event"}},
		Empty: empty{Title: "Nobody is blocked", Text: "No verdict is in force. When an event takes a key over a limit, it appears here."},
	}
	if p.All > 0 {
		t.Empty = empty{Title: "None of them matches", Text: fmt.Sprintf("%s in force, none with this filter.", plural(p.All, "verdict")), Link: "/blocked", LinkText: "Show all of them"}
	}
	for i := range p.Rows {
		v := &p.Rows[i]
		t.Rows = append(t.Rows, row{Cells: []cell{
			{Text: e.text(v.Key), Link: e.path(v.Key), Head: true, Code: true},
			ruleCell(v.Rule), modeCell(v), textCell(actionOf(v)), {HTML: when(v.Since.Time())}, {HTML: left(v.Until.Time(), r.Now)},
			{HTML: barOf(v).Draw(), Note: v.Count.String() + " of " + v.Limit.String()}, causeCell(v),
		}})
	}
	return t
}

// ruleCell links a rule's name; the one of commands has no page.
func ruleCell(rule string) cell {
	c := cell{Text: words.Cell(rule, 128)}
	if name, _, _ := strings.Cut(rule, "/"); name != verdict.Manual && name != "" {
		c.Link = "/rules/" + url.PathEscape(name)
	}
	return c
}

func modeCell(v *verdict.Verdict) cell {
	switch {
	case v.State == verdict.Warn:
		return cell{Text: "warning at " + words.Cell(v.Step, 32), Tag: "warn"}
	case v.Mode == verdict.Shadow:
		return cell{Text: "shadow", Tag: "plain"}
	}
	return cell{Text: "enforced", Tag: "bad"}
}

func actionOf(v *verdict.Verdict) string {
	if v.State == verdict.Warn {
		return ""
	}
	return v.Action.String()
}

func causeCell(v *verdict.Verdict) cell {
	if v.Rule == verdict.Manual {
		return cell{Text: "a command", Note: words.Cell(v.Cause.ID, 40)}
	}
	if v.Cause.ID == "" {
		return cell{Text: words.Cause(v), Code: true}
	}
	return cell{Text: words.Cell(v.Cause.ID, 40), Code: true, Note: fmt.Sprintf("%d@%d", v.Cause.Partition, v.Cause.Offset)}
}

func barOf(v *verdict.Verdict) chart.Bar {
	return chart.Bar{Title: v.Rule, Desc: v.Count.String() + " of " + v.Limit.String(), Value: decimal(v.Count), Limit: decimal(v.Limit),
		Closed: v.Rule != verdict.Manual, Shadow: v.Mode == verdict.Shadow || v.State == verdict.Warn}
}

// decimal is a count for a drawing.
func decimal(d event.Decimal) float64 { return float64(d) / float64(event.One) }

// ruleRows bounds the rules that are counted on the page, those with the most verdicts.
const ruleRows = 50

// ruleTable counts verdicts by rule; each row leads to those of the rule.
func ruleTable(counts []blocks.RuleCount, chosen string) table {
	t := table{
		Caption: fmt.Sprintf("Verdicts in force by rule: the %d rules with the most", min(len(counts), ruleRows)), Head: []column{{Text: "Rule"}, {Text: "Enforced", Num: true}, {Text: "Shadow", Num: true}, {Text: "Warnings", Num: true}},
		Empty: empty{Title: "No rule has a verdict in force"},
	}
	for i := range counts[:min(len(counts), ruleRows)] {
		c := &counts[i]
		name := cell{Text: words.Cell(c.Rule, 128), Link: "/blocked?" + url.Values{"rule": {c.Rule}}.Encode(), Head: true}
		if c.Rule == chosen {
			name.Note = "shown"
		}
		t.Rows = append(t.Rows, row{Cells: []cell{name, numCell(c.Enforce), numCell(c.Shadow), numCell(c.Warn)}})
	}
	return t
}

// searchBlocked shows a key's rows: the form sends the key in its body, so that no address has it.
func searchBlocked(r *request) (result, error) {
	k, err := r.keys()
	if err != nil {
		return result{}, err
	}
	key, err := parseKey(r.PostForm.Get("key"))
	if err != nil {
		return result{}, err
	}
	shown, err := r.reveal(k, key, "blocked", "")
	if err != nil {
		return result{}, err
	}
	done := result{To: "/blocked?" + url.Values{"key": {k.refs.Ref(key)}}.Encode()}
	if shown != nil {
		done.cookies = append(done.cookies, shown)
	}
	return done, nil
}
