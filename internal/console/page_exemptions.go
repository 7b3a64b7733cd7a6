package console

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/run/access"
)

func exemptionsPage() page {
	return page{name: "exemptions", path: "/exemptions", title: "Exemptions", nav: "Exemptions", least: access.Viewer, load: loadExemptions}
}

type exemptionsView struct {
	Show    string
	Total   int
	Soon    int // end within the next hour
	Endless int
	More    int
	Missing []api.MissingPartition
	Table   table
}

// exemptionsAtMost bounds the list.
const exemptionsAtMost = "5000"

// endsSoon is from when on an exemption is said to end soon.
const endsSoon = time.Hour

func loadExemptions(r *request) (any, error) {
	k, err := r.keys()
	if err != nil {
		return nil, err
	}
	a, err := r.API.Exemptions(r.ctx(), url.Values{"limit": {exemptionsAtMost}})
	if err != nil {
		return nil, err
	}
	v := &exemptionsView{Show: r.query().Get("show"), Total: len(a.Exemptions) + a.More, More: a.More, Missing: a.Missing}
	soon := event.FromTime(r.Now.Add(endsSoon))
	shown := a.Exemptions[:0:0]
	for _, x := range a.Exemptions {
		ending, endless := x.Until != event.NoTime && x.Until <= soon, x.Until == event.NoTime
		if ending {
			v.Soon++
		}
		if endless {
			v.Endless++
		}
		switch v.Show {
		case "soon":
			if !ending {
				continue
			}
		case "endless":
			if !endless {
				continue
			}
		case "command", "rules":
			if x.From != v.Show {
				continue
			}
		}
		shown = append(shown, x)
	}
	slices.SortStableFunc(shown, func(x, y api.Exemption) int { return cmp.Compare(x.Until, y.Until) }) // NoTime is the latest
	v.Table = r.eyesOf(k, nil).exemptionTable(shown, r.Now, r.may(access.Operator))
	return v, nil
}

// exemptionTable lists exemptions; acts adds what can be done about them.
func (e *eyes) exemptionTable(list []api.Exemption, now time.Time, acts bool) table {
	t := table{
		Caption: "Exemptions", Hidden: true,
		Head:  []column{{Text: "Key"}, {Text: "Rules"}, {Text: "From"}, {Text: "Ends"}, {Text: "Given by"}, {Text: "Reason"}},
		Empty: empty{Title: "Nothing is exempt", Text: "An exemption is given on a key's page, by `tallygate exempt`, or in the rule file."},
	}
	if acts {
		t.Head = append(t.Head, column{Text: "Prolong"}, column{Text: "End"})
	}
	for i := range list {
		x := &list[i]
		key := dimsOf(x.Key)
		r := row{Cells: []cell{e.exemptedCell(x, key), textCell(rulesOf(x)), textCell(map[string]string{"rules": "the rule file", "command": "a command"}[x.From])}}
		switch {
		case x.Until == event.NoTime:
			r.Cells = append(r.Cells, cell{Text: "never", Tag: "warn"})
		case x.Until.Time().Sub(now) <= endsSoon:
			r.Cells = append(r.Cells, cell{HTML: left(x.Until.Time(), now), Tag: "warn"})
		default:
			r.Cells = append(r.Cells, cell{HTML: when(x.Until.Time())})
		}
		by := x.By
		if x.OnBehalfOf != "" {
			by += " for " + x.OnBehalfOf
		}
		r.Cells = append(r.Cells, textCell(words.Cell(by, 128)), textCell(words.Cell(x.Reason, 400)))
		if acts {
			r.Cells = append(r.Cells, e.exemptionActs(x, key)...)
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

// exemptionActs lead to the forms that end or extend one.
func (e *eyes) exemptionActs(x *api.Exemption, key []event.Dim) []cell {
	if x.From != "command" || len(key) == 0 {
		return []cell{{Text: "in the rule file"}, {}}
	}
	q := url.Values{}
	if len(x.Rules) == 1 {
		q.Set("rule", x.Rules[0])
	}
	return []cell{{Text: "Extend …", Link: withQuery(e.path(key)+"/exempt", q)}, {Text: "End …", Link: withQuery(e.path(key)+"/end-exemption", q)}}
}

// exemptedCell shows an exemption's key. A network may be a user's.
func (e *eyes) exemptedCell(x *api.Exemption, key []event.Dim) cell {
	c := cell{Text: e.text(key), Head: true, Code: true}
	if len(key) > 0 {
		c.Link = e.path(key)
	}
	if x.In != "" {
		in := words.Cell(x.In, 128)
		if _, err := netip.ParsePrefix(x.In); err == nil {
			in = e.refs.MaskValue("ip", x.In)
		} else if _, err := netip.ParseAddr(x.In); err == nil {
			in = e.refs.MaskValue("ip", x.In)
		}
		c.Text = strings.TrimSpace(c.Text + " ip in " + in)
	}
	return c
}

func rulesOf(x *api.Exemption) string {
	if len(x.Rules) == 0 {
		return "all"
	}
	return words.Cell(strings.Join(x.Rules, ", "), 400)
}
