package console

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/tools/doctor"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

func clusterPage() page {
	return page{
		name: "cluster", path: "/cluster", title: "Cluster", nav: "Cluster", least: access.Viewer,
		load: loadCluster, glance: glanceCluster,
		parts:   []string{"owners", "partitions", "members", "topics", "enforcers"},
		actions: map[string]action{"doctor": {least: access.Operator, do: examine}},
	}
}

// cluster is the data of the page Cluster.
type cluster struct {
	Trouble    *health.Link // the aggregators' link, when nobody says how the group is
	Read       time.Time
	Owners     table
	Partitions table
	Members    table
	Details    []api.Status
	Topics     []topicLine
	Findings   []doctor.Result
	Exam       *exam
	MayDoctor  bool
	Enforcers  table
	Guest      bool // nobody knows who reads
}

// topicLine is a topic as Kafka tells of it.
type topicLine struct {
	health.Topic
	Records int64
}

func loadCluster(r *request) (any, error) {
	c := &cluster{Exam: r.server.exam.now(), MayDoctor: r.may(access.Operator) && r.server.Doctor.Kafka != nil}
	c.Findings = c.Exam.About("topics", "replication", "retention", "state-size", "kafka-settings")
	c.Owners, c.Partitions, c.Members, c.Enforcers = ownerTable(nil), partitionTable(nil), memberTable(nil, nil), enforcerTable(nil)
	s := r.State
	if s == nil {
		return c, nil
	}
	for i := range s.Chain.Links {
		if l := &s.Chain.Links[i]; l.Name == "aggregators" && !s.Readings.Cluster.Known(s.At) {
			c.Trouble = l
		}
	}
	group := &s.Readings.Cluster.Value
	c.Read, c.Details = s.Readings.Cluster.At, group.Members
	c.Owners, c.Partitions = ownerTable(group), partitionTable(group)
	c.Members = memberTable(group.Members, group.Missing)
	c.kafka(&s.Readings)
	c.Enforcers = enforcerTable(&s.Readings)
	return c, nil
}

// glanceCluster shows what needs no aggregator: the topics and the enforcers.
func glanceCluster(r *request) (any, error) {
	c := &cluster{Exam: &exam{}, Guest: true, Owners: ownerTable(nil), Partitions: partitionTable(nil), Members: memberTable(nil, nil), Enforcers: enforcerTable(nil)}
	if r.State != nil {
		c.kafka(&r.State.Readings)
		c.Enforcers = enforcerTable(&r.State.Readings)
	}
	return c, nil
}

func (c *cluster) kafka(r *health.Observations) {
	if r.Kafka.At.IsZero() {
		return
	}
	for _, t := range []health.Topic{r.Kafka.Value.Events, r.Kafka.Value.Verdicts} {
		if !t.Missing {
			c.Topics = append(c.Topics, topicLine{t, t.End()})
		}
	}
}

// owned is a partition and who has it.
type owned struct {
	api.PartitionStatus
	owner string
}

func partitionTable(group *api.Cluster) table {
	t := table{Caption: "Partitions", Hidden: true, Empty: empty{Title: "No partition is known", Text: "An aggregator says who owns which partition."},
		Head: []column{{Text: "Partition"}, {Text: "Owner"}, {Text: "State"}, {Text: "Events/s", Num: true, About: "Over about 30 seconds; an event counts once per key"}, {Text: "Share", Num: true},
			{Text: "Not counted", Num: true, About: "Records of the event topic that wait"}, {Text: "Behind", Num: true}, {Text: "Forwarded", Num: true, About: "Records of the repartition topic that wait"},
			{Text: "Keys", Num: true}, {Text: "Memory", Num: true}, {Text: "Checkpoint", Num: true, About: "How long ago all that was counted was last durable"}, {Text: "Taken over", Num: true, About: "When, how long it took, and how often by this owner"}}}
	if group == nil {
		return t
	}
	var all []owned
	most := 0.0
	now := time.Time{}
	for _, m := range group.Members {
		if m.Now.After(now) {
			now = m.Now
		}
		if m.Aggregator == nil {
			continue
		}
		for _, p := range m.Aggregator.Partitions {
			all = append(all, owned{p, m.Instance})
			most = max(most, p.Events)
		}
	}
	slices.SortFunc(all, func(a, b owned) int { return cmp.Compare(a.Partition, b.Partition) })
	for _, p := range all {
		t.Rows = append(t.Rows, p.row(most, now))
	}
	for _, u := range group.Unowned {
		r := row{ID: fmt.Sprintf("p%d", u.Partition), Class: "bad", Cells: []cell{{Text: number(u.Partition), Head: true}, {Text: "nobody", Tag: "bad"}, {Text: u.Reason}}}
		for range len(t.Head) - len(r.Cells) {
			r.Cells = append(r.Cells, textCell(""))
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

func (p owned) row(most float64, now time.Time) row {
	r := row{ID: fmt.Sprintf("p%d", p.Partition)}
	state := cell{Text: p.State, Tag: "unknown"}
	switch {
	case p.State == "failed":
		state.Tag, r.Class = "bad", "bad"
	case p.State == "recovering":
		state.Tag, r.Class = "warn", "warn"
	case p.State == "open":
		state.Tag = "ok"
	}
	if p.State == "open" && health.Late.Level(seconds(p.LagSeconds)) != health.OK {
		state.Tag, state.Text, r.Class = "warn", "behind", "warn"
	}
	taken := textCell("")
	if !p.TakenOver.IsZero() {
		taken = cell{HTML: ago(p.TakenOver, now), Note: "in " + span(seconds(p.TakeoverSeconds))}
		if p.Takeovers > 1 {
			taken.Note += ", " + number(p.Takeovers) + " times"
		}
	}
	behind := textCell("")
	if p.LagSeconds > 0 {
		behind.Text = span(seconds(p.LagSeconds))
	}
	r.Cells = []cell{{Text: number(p.Partition), Head: true}, {Text: p.owner, Link: "#m-" + anchor(p.owner)}, state, {Text: rate(p.Events)}, {HTML: heat(p.Events, most)},
		numCell(p.Lag), behind, numCell(p.LoopLag), numCell(p.Keys), {Text: size(p.Bytes)}, {HTML: ago(p.LastCheckpoint, now)}, taken}
	return r
}

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

// heat is a bar of how much of the busiest partition's load one has. The number is beside it.
func heat(v, most float64) template.HTML {
	width := 0.0
	if most > 0 {
		width = 100 * v / most
	}
	return template.HTML(fmt.Sprintf(`<svg class="heat" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect class="track" width="100" height="8" rx="2"/><rect class="fill" width="%.1f" height="8" rx="2"/></svg>`, width)) //nolint:gosec // a number
}

// anchor is a name as a fragment of an address.
func anchor(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, name)
}

func memberTable(members []api.Status, missing []api.MissingMember) table {
	t := table{Caption: "Members", Hidden: true, Empty: empty{Title: "No aggregator answers", Text: "Start one; or correct --aggregator of this console."},
		Head: []column{{Text: "Instance"}, {Text: "State"}, {Text: "Partitions", Num: true}, {Text: "Rules", Num: true}, {Text: "Version"}, {Text: "Started", Num: true}, {Text: "Address"}, {Text: "Last error"}}}
	for i := range members {
		m := &members[i]
		r := row{ID: "m-" + anchor(m.Instance)}
		state := cell{Text: "ready", Tag: "ok"}
		if !m.Ready {
			state, r.Class = cell{Text: "not ready", Tag: "bad"}, "bad"
		}
		if m.Why != "" {
			state.Note = m.Why
		}
		partitions, rules := textCell(""), textCell("")
		if a := m.Aggregator; a != nil {
			partitions, rules = numCell(len(a.Partitions)), numCell(a.Rules.Version)
			if !a.Rules.FileOK {
				rules.Note, r.Class = "file rejected", "warn"
			}
		}
		r.Cells = []cell{{Text: m.Instance, Head: true}, state, partitions, rules, {Text: m.Version}, {HTML: ago(m.Started, m.Now)}, textCell(m.Address), lastError(m)}
		t.Rows = append(t.Rows, r)
	}
	for _, m := range missing {
		t.Rows = append(t.Rows, row{ID: "m-" + anchor(m.Instance), Class: "bad", Cells: []cell{{Text: m.Instance, Head: true}, {Text: "does not answer", Tag: "bad"},
			textCell(""), textCell(""), textCell(""), textCell(""), textCell(m.Address), {Text: m.Reason}}})
	}
	return t
}

func lastError(m *api.Status) cell {
	if len(m.Errors) == 0 {
		return cell{Text: "none"}
	}
	e := &m.Errors[0]
	return cell{HTML: template.HTML(template.HTMLEscapeString(e.Message)+", ") + ago(e.Last, m.Now)} //nolint:gosec // escaped
}

func enforcerTable(r *health.Observations) table {
	t := table{Caption: "Enforcers", Hidden: true, Empty: empty{Title: "No enforcer announces itself", Text: "Each writes a line into Redis every two seconds. Those of older versions do not."},
		Head: []column{{Text: "Name"}, {Text: "State"}, {Text: "Kind"}, {Text: "Version"}, {Text: "Heard", Num: true}, {Text: "Behind", Num: true, About: "How far its table is behind the verdicts"},
			{Text: "Verdicts", Num: true}, {Text: "Checks", Num: true, About: "Since its start"}, {Text: "Denied", Num: true}, {Text: "Clock", Num: true, About: "Against that of Redis"}, {Text: "Started", Num: true}, {Text: "Address"}}}
	if r == nil {
		return t
	}
	for i := range r.Enforcers.Value {
		b := &r.Enforcers.Value[i]
		l := health.Enforcer(r, b)
		line := row{ID: "e-" + anchor(b.ID)}
		if l.Level == health.Bad || l.Level == health.Warn {
			line.Class = string(l.Level)
		}
		state := cell{Text: levelWord(l.Level), Tag: string(l.Level)}
		if l.Level != health.OK {
			state.Note = l.Cause
		}
		line.Cells = []cell{{Text: b.Name, Head: true}, state, textCell(b.Kind), textCell(b.Version), {Text: span(b.Age)}, staleness(b), numCell(b.Entries),
			numCell(b.Checks), numCell(b.Denied), {Text: skew(b)}, {HTML: ago(b.Started, b.Seen)}, textCell(b.URL)}
		t.Rows = append(t.Rows, line)
	}
	return t
}

func staleness(b *presence.Beat) cell {
	if b.Staleness < 0 {
		return cell{Text: "no blocklist"}
	}
	return cell{Text: span(seconds(b.Staleness))}
}

func skew(b *presence.Beat) string {
	d := b.Skew()
	if d.Abs() < 100*time.Millisecond {
		return "same"
	}
	if d < 0 {
		return span(-d) + " slow"
	}
	return span(d) + " fast"
}
