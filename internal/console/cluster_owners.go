package console

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/health"
)

// ownerTable has a line for each member, with the partitions that it has: which, in which state, how far behind. Who
// has none, and partitions that nobody has, are in it, too.
func ownerTable(group *api.Cluster) table {
	t := table{Caption: "Members and their partitions", Hidden: true, Empty: empty{Title: "No partition is known", Text: "An aggregator says who owns which partition."},
		Head: []column{{Text: "Member"}, {Text: "Its partitions"}, {Text: "Events/s", Num: true}, {Text: "Not counted", Num: true, About: "Records of the event topic that wait"},
			{Text: "Behind", Num: true, About: "Of the partition that is behind most"}}}
	if group == nil {
		return t
	}
	for i := range group.Members {
		if m := &group.Members[i]; m.Aggregator != nil {
			t.Rows = append(t.Rows, ownerRow(m))
		}
	}
	for _, m := range group.Missing {
		t.Rows = append(t.Rows, row{ID: "o-" + anchor(m.Instance), Class: "bad", Cells: []cell{{Text: m.Instance, Head: true, Link: "#m-" + anchor(m.Instance)},
			{Text: "does not answer", Tag: "bad"}, textCell(""), textCell(""), textCell("")}})
	}
	if len(group.Unowned) > 0 {
		all := make([]chip, len(group.Unowned))
		for i, u := range group.Unowned {
			all[i] = chip{u.Partition, health.Bad, "no owner"}
		}
		t.Rows = append(t.Rows, row{ID: "o-nobody", Class: "bad", Cells: []cell{{Text: "nobody", Head: true}, {HTML: chips(all)}, textCell(""), textCell(""), textCell("")}})
	}
	return t
}

func ownerRow(m *api.Status) row {
	r := row{ID: "o-" + anchor(m.Instance)}
	var all []chip
	var events, behind float64
	var lag int64
	worst := health.OK
	for _, p := range m.Aggregator.Partitions {
		c := chipOf(&p)
		all, worst = append(all, c), worst.Worse(c.level)
		events, lag, behind = events+p.Events, lag+p.Lag, max(behind, p.LagSeconds)
	}
	if worst == health.Bad || worst == health.Warn {
		r.Class = string(worst)
	}
	slices.SortFunc(all, func(a, b chip) int { return cmp.Compare(a.partition, b.partition) })
	has := cell{HTML: chips(all)}
	if len(all) == 0 {
		has = cell{Text: "none"}
	}
	late := textCell("")
	if behind > 0 {
		late.Text = span(seconds(behind))
	}
	r.Cells = []cell{{Text: m.Instance, Head: true, Link: "#m-" + anchor(m.Instance)}, has, {Text: rate(events)}, numCell(lag), late}
	return r
}

// chip is a partition in a member's line. Its state is in words, not only in a colour.
type chip struct {
	partition int32
	level     health.Level
	words     string // "" where all is well
}

func chipOf(p *api.PartitionStatus) chip {
	behind := seconds(p.LagSeconds)
	switch late := health.Late.Level(behind); {
	case p.State == "failed":
		return chip{p.Partition, health.Bad, "failed"}
	case p.State != "open":
		return chip{p.Partition, health.Warn, p.State}
	case late != health.OK:
		return chip{p.Partition, late, span(behind) + " behind"}
	}
	return chip{p.Partition, health.OK, ""}
}

func chips(all []chip) template.HTML {
	var b strings.Builder
	b.WriteString(`<ul class="chips">`)
	for _, c := range all {
		text := fmt.Sprint(c.partition)
		if c.words != "" {
			text += " " + c.words
		}
		fmt.Fprintf(&b, `<li class="%s"><a href="#p%d">%s</a></li>`, c.level, c.partition, template.HTMLEscapeString(text))
	}
	b.WriteString(`</ul>`)
	return template.HTML(b.String()) //nolint:gosec // numbers, a level and escaped text
}
