package console

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/console/rulestats"
	"github.com/tallygate/tallygate/internal/console/rulewatch"
	"github.com/tallygate/tallygate/internal/console/rulewords"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/rules"
)

func rulesPage() page {
	return page{
		name: "rules", path: "/rules", title: "Rules", nav: "Rules", least: access.Viewer, load: loadRules,
		parts: []string{"rules-live"}, every: 3 * time.Second, extra: []string{"rules.css"},
	}
}

// rulesPerPage are few enough that a page is small on the wire.
const rulesPerPage = 100

// rulesQuery selects and orders rules.
type rulesQuery struct {
	Text, Mode, Only, Sort string
	Down                   bool
	Page                   int
}

// ruleOrders are the columns by which the list can be ordered, with what they compare.
var ruleOrders = map[string]func(a, b *ruleRow) int{
	"rule":    func(a, b *ruleRow) int { return strings.Compare(a.Name, b.Name) },
	"matches": func(a, b *ruleRow) int { return cmp.Compare(a.Fares.Matches, b.Fares.Matches) },
	"blocked": func(a, b *ruleRow) int { return cmp.Compare(a.Fares.Blocked, b.Fares.Blocked) },
	"denials": func(a, b *ruleRow) int { return cmp.Compare(a.Fares.Denials, b.Fares.Denials) },
	"would":   func(a, b *ruleRow) int { return cmp.Compare(a.Fares.WouldDeny, b.Fares.WouldDeny) },
	"near":    func(a, b *ruleRow) int { return cmp.Compare(a.Fares.Near, b.Fares.Near) },
	"overshoot": func(a, b *ruleRow) int {
		return cmp.Or(cmp.Compare(a.Fares.Overshoot, b.Fares.Overshoot), cmp.Compare(a.Fares.Above, b.Fares.Above))
	},
	"change": func(a, b *ruleRow) int { return cmp.Compare(a.Change.Version, b.Change.Version) },
}

// onlyRules are the choices of which rules to show beside all.
var onlyRules = map[string]func(*ruleRow) bool{
	"blocking now":   func(r *ruleRow) bool { return r.Fares.Blocked > 0 },
	"overshoot":      func(r *ruleRow) bool { return r.Fares.Above > 0 },
	"fuse blown":     func(r *ruleRow) bool { return r.Fares.Blown },
	"silent":         func(r *ruleRow) bool { return r.Fares.Matches == 0 },
	"cannot count":   func(r *ruleRow) bool { return r.Fares.Skips > 0 },
	"changed in 24h": func(r *ruleRow) bool { return r.Recent },
}

// ruleRow is a rule in the list.
type ruleRow struct {
	Name, Mode string
	Limits     []string
	Then       string
	Fuse       string // "" without one
	Fares      rulestats.Rule
	Change     rulewatch.Change // of no version: unknown
	Recent     bool
}

// rulesData is the data of the list.
type rulesData struct {
	Version *rulewatch.Opened
	Watch   *rulewatch.State
	Query   rulesQuery
	Rows    []ruleRow
	All     int // rules
	Found   int
	Pages   int
	Modes   []string
	Only    []string
	Columns []sortColumn
}

// sortColumn is the head of a column that orders the list.
type sortColumn struct {
	Text, About, Link string
	Num               bool
	Order             string // of aria-sort: ascending, descending, or none
}

func readRulesQuery(q url.Values) rulesQuery {
	out := rulesQuery{Text: strings.TrimSpace(q.Get("q")), Mode: q.Get("mode"), Only: q.Get("only"), Sort: q.Get("sort"), Down: q.Get("order") == "down"}
	if ruleOrders[out.Sort] == nil {
		out.Sort, out.Down = "rule", false
	}
	out.Page, _ = strconv.Atoi(q.Get("page")) // what is no number is the first page
	out.Page = max(out.Page, 1)
	return out
}

// with is the address of the list with another order or page.
func (q rulesQuery) with(sort string, down bool, page int) string {
	v := url.Values{}
	set := func(name, value, usual string) {
		if value != usual {
			v.Set(name, value)
		}
	}
	set("q", q.Text, "")
	set("mode", q.Mode, "")
	set("only", q.Only, "")
	set("sort", sort, "rule")
	set("order", map[bool]string{true: "down"}[down], "")
	set("page", strconv.Itoa(page), "1")
	if len(v) == 0 {
		return "/rules"
	}
	return "/rules?" + v.Encode()
}

func (q rulesQuery) wants(r *ruleRow) bool {
	if q.Mode != "" && r.Mode != q.Mode {
		return false
	}
	if only := onlyRules[q.Only]; only != nil && !only(r) {
		return false
	}
	text := strings.ToLower(q.Text)
	return text == "" || strings.Contains(r.Name, text) || strings.Contains(strings.ToLower(strings.Join(r.Limits, " ")+" "+r.Then), text)
}

func loadRules(r *request) (any, error) {
	running, err := r.running()
	if err != nil {
		return nil, err
	}
	d := &rulesData{Version: running, Watch: r.server.rules.watch.State(), Query: readRulesQuery(r.query()), Only: slices.Sorted(maps.Keys(onlyRules))}
	if running.Set == nil {
		return d, nil
	}
	modes, now := map[string]bool{}, r.inForce()
	for _, rule := range running.Set.All() {
		row := d.row(r, rule, now)
		modes[row.Mode] = true
		d.All++
		if d.Query.wants(&row) {
			d.Rows = append(d.Rows, row)
		}
	}
	d.Modes = slices.Sorted(maps.Keys(modes))
	compare := ruleOrders[d.Query.Sort]
	slices.SortStableFunc(d.Rows, func(a, b ruleRow) int {
		if d.Query.Down {
			a, b = b, a
		}
		return compare(&a, &b)
	})
	d.Found = len(d.Rows)
	d.Pages = max((d.Found+rulesPerPage-1)/rulesPerPage, 1)
	d.Query.Page = min(d.Query.Page, d.Pages)
	from := (d.Query.Page - 1) * rulesPerPage
	d.Rows = d.Rows[from:min(from+rulesPerPage, d.Found)]
	d.Columns = d.Query.columns()
	return d, nil
}

func (d *rulesData) row(r *request, rule *rules.Rule, now map[string]inForce) ruleRow {
	row := ruleRow{
		Name: rule.Name, Mode: rulewords.Mode(rule), Limits: rulewords.Limits(rule), Then: rulewords.Then(rule),
		Fares: fares(d.Watch, rule.Name, now), Change: d.Watch.Changes[rule.Name],
	}
	if rule.Fuse > 0 {
		row.Fuse = percent(float64(rule.Fuse) / 1e6)
	}
	row.Recent = row.Change.Version > 0 && row.Change.What != "there" && r.Now.Sub(row.Change.At) < 24*time.Hour
	return row
}

// columns are the heads. A first look at numbers wants the greatest first.
func (q rulesQuery) columns() []sortColumn {
	out := []sortColumn{
		{Text: "Rule", Link: "rule"},
		{Text: "Limit"},
		{Text: "Matches/s", Link: "matches", Num: true, About: "events a second that the rule counts"},
		{Text: "Blocked now", Link: "blocked", Num: true, About: "keys with a verdict in force, and in shadow mode"},
		{Text: "Denied/s", Link: "denials", Num: true, About: "checks a second that enforcers denied"},
		{Text: "Would deny/s", Link: "would", Num: true, About: "checks a second that a shadow verdict would have denied"},
		{Text: "Near/s", Link: "near", Num: true, About: "events a second that left a key at 80 % of a limit or more, and not above it"},
		{Text: "Overshoot/s", Link: "overshoot", Num: true, About: "events a second that counted above an enforced limit, before the block was in force; below it how many since the console began"},
		{Text: "Last change", Link: "change"},
	}
	for i := range out {
		c := &out[i]
		if c.Link == "" {
			continue
		}
		down := c.Link != "rule"
		if c.Link == q.Sort {
			down = !q.Down
			c.Order = map[bool]string{true: "descending", false: "ascending"}[q.Down]
		}
		c.Link = q.with(c.Link, down, 1)
	}
	return out
}

// Earlier and Later are the pages beside this one; "" at the ends.
func (d *rulesData) Earlier() string { return d.beside(-1) }

// Later is the next page.
func (d *rulesData) Later() string { return d.beside(1) }

func (d *rulesData) beside(step int) string {
	if to := d.Query.Page + step; to >= 1 && to <= d.Pages {
		return d.Query.with(d.Query.Sort, d.Query.Down, to)
	}
	return ""
}
