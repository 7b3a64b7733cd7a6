package console

import (
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/console/chart"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/run/health/watch"
)

func overviewPage() page {
	return page{
		name: "overview", path: "/", title: "Overview", nav: "Overview", least: access.Viewer,
		load: loadOverview, glance: glanceOverview, open: true,
		parts:   []string{"verdict", "chain", "numbers", "curve", "doctor"},
		actions: map[string]action{"doctor": {least: access.Operator, do: examine}},
	}
}

// overview is the data of the overview.
type overview struct {
	Worst     health.Level
	Line      string // the state of all, in a sentence
	Notices   []health.Notice
	Links     []shownLink // the chain; enforcers are one
	Wrong     []health.Link
	More      int // of Wrong that are left out
	Enforcers []health.Link
	Numbers   []tile
	Curve     template.HTML
	Began     time.Time // of the curve
	Exam      *exam
	HasDoctor bool
	MayDoctor bool
}

// shownLink is a link, or all enforcers together.
type shownLink struct {
	health.Link
	Of string // where to look: an anchor or a page
}

// tile is a number with what it is.
type tile struct {
	Name, Value, Unit, Note string
	Link                    string       // of the note; "": nowhere
	Level                   health.Level // of its mark; OK has none
}

const (
	mostWrong = 12
	curveStep = 5 * time.Second
)

func loadOverview(r *request) (any, error) {
	o := &overview{Exam: r.server.exam.now(), HasDoctor: r.server.Doctor.Kafka != nil, MayDoctor: r.may(access.Operator), Worst: health.Unknown}
	if r.State == nil || len(r.State.Chain.Links) == 0 {
		o.Line = "The first look at the installation is under way."
		return o, nil
	}
	c := &r.State.Chain
	o.Worst, o.Notices = c.Worst(), c.Notices
	for _, l := range c.Links {
		if l.Level != health.OK {
			o.Wrong = append(o.Wrong, l)
		}
		if strings.HasPrefix(l.Name, "enforcer") {
			o.Enforcers = append(o.Enforcers, l)
		} else {
			o.Links = append(o.Links, shownLink{l, ""})
		}
	}
	o.Links = append(o.Links, shownLink{together(o.Enforcers), "/cluster#enforcers"})
	o.Line = lineOf(o.Worst, o.Wrong, o.Notices)
	r.Title = o.Line
	slices.SortStableFunc(o.Wrong, func(a, b health.Link) int { return b.Level.Compare(a.Level) })
	if len(o.Wrong) > mostWrong {
		o.More, o.Wrong = len(o.Wrong)-mostWrong, o.Wrong[:mostWrong]
	}
	o.Numbers = tiles(&r.State.Numbers)
	o.Curve = curveOf(r.State.Points)
	return o, nil
}

// glanceOverview shows the chain to guests. Those who are not near get no names, no addresses and no errors'
// texts: what else the console knows, it does not tell to whoever asks.
func glanceOverview(r *request) (any, error) {
	data, err := loadOverview(r)
	o, ok := data.(*overview)
	if err != nil || !ok {
		return nil, err
	}
	o.Exam, o.HasDoctor, o.MayDoctor = &exam{}, false, false
	if r.Who.Near {
		return o, nil
	}
	o.Notices, o.Numbers, o.Curve, o.Enforcers, o.Wrong, o.More = nil, nil, "", nil, nil, 0
	for i := range o.Links {
		l := &o.Links[i]
		l.Of = ""
		if l.Name != "enforcers" {
			l.Cause = l.Plain
		}
		if l.Level != health.OK {
			o.Wrong = append(o.Wrong, l.Link)
		}
	}
	o.Line = lineOf(o.Worst, o.Wrong, nil)
	r.Title = o.Line
	slices.SortStableFunc(o.Wrong, func(a, b health.Link) int { return b.Level.Compare(a.Level) })
	return o, nil
}

// together makes one link of all enforcers: as bad as the worst of them.
func together(all []health.Link) health.Link {
	if len(all) == 1 && all[0].Name == "enforcers" {
		return all[0]
	}
	l := health.Link{Name: "enforcers", Title: "Enforcers", Level: health.OK}
	well := 0
	for i := range all {
		if all[i].Level == health.OK {
			well++
		}
		if worse := l.Level.Worse(all[i].Level); worse != l.Level || l.Since.IsZero() {
			l.Level, l.Since = worse, all[i].Since
		}
		l.Read = all[i].Read
	}
	l.Cause = plural(len(all), "enforcer") + ", all up to date"
	if well < len(all) {
		l.Cause = number(len(all)-well) + " of " + number(len(all)) + " need a look"
	}
	return l
}

// lineOf names what is broken, since it is what a reader who was paged looks for.
func lineOf(worst health.Level, wrong []health.Link, notices []health.Notice) string {
	var broken []string
	for i := range wrong {
		if wrong[i].Level == health.Bad {
			broken = append(broken, wrong[i].Title)
		}
	}
	const most = 4
	if len(broken) > most {
		broken = append(broken[:most], number(len(broken)-most)+" more")
	}
	warnings := len(notices)
	for i := range wrong {
		if wrong[i].Level == health.Warn {
			warnings++
		}
	}
	switch {
	case len(broken) > 0:
		return "Broken: " + strings.Join(broken, ", ")
	case worst == health.OK:
		return "Everything works"
	case worst == health.Unknown:
		return "Nothing is known to be broken, but not all of it is known to work"
	case worst == health.Bad:
		return "The links work, but look at this"
	}
	return "It works, with " + plural(warnings, "warning")
}

func tiles(n *watch.Numbers) []tile {
	lag := tile{Name: "Not counted yet", Value: dash, Unit: "records", Note: "nothing waits"}
	if n.Lag >= 0 {
		lag.Value = number(n.Lag)
	}
	if n.Worst >= 0 {
		lag.Note = span(n.LagTime) + " behind, worst: partition " + number(n.Worst)
		if health.Late.Level(n.LagTime) != health.OK {
			lag.Level = health.Warn
		}
	} else if n.Lag != 0 {
		lag.Note = "by how long is unknown"
	}
	p99 := tile{Name: "Event to denial, p99", Value: dash, Note: "no new block in five minutes"}
	if n.P99 > 0 {
		p99.Value, p99.Note = span(n.P99), "of the latest five minutes"
		if n.ToVerdict {
			p99.Name, p99.Note = "Event to verdict, p99", "enforcers do not say when they deny"
		}
	}
	blocked := tile{Name: "Blocked now", Value: dash, Unit: "keys"}
	if n.Blocked >= 0 {
		blocked.Value = number(n.Blocked)
	}
	if n.InForce {
		blocked.Name, blocked.Unit, blocked.Note = "In force now", "verdicts", "shadow ones among them"
	}
	doubt := tile{Name: "Enforcers in doubt", Value: dash}
	if n.Enforcers >= 0 {
		doubt.Value, doubt.Unit = number(n.InDoubt), "of "+number(n.Enforcers)
		if n.InDoubt > 0 {
			doubt.Level = health.Bad
		}
	}
	counted := tile{Name: "Counted", Value: rate(n.Counted), Unit: "/s"}
	if gap := n.In - n.Counted; !math.IsNaN(gap) && gap > 1 && gap > n.In/10 && n.Lag > 0 {
		counted.Level, counted.Note = health.Warn, rate(gap)+"/s less than arrive"
	}
	all := []tile{{Name: "Events in", Value: rate(n.In), Unit: "/s"}, counted, lag, {Name: "Verdicts", Value: rate(n.Verdicts), Unit: "/s"},
		{Name: "Denials", Value: rate(n.Denials), Unit: "/s"}, blocked, p99, doubt}
	if n.DeadLetters > 0 {
		all[0].Note = rate(n.DeadLetters) + "/s malformed"
	}
	if n.Overshoot > 0 {
		all[4].Note, all[4].Link = rate(n.Overshoot)+"/s got through above a limit", "/rules?only=overshoot&sort=overshoot&order=down"
	}
	return all
}

// curveOf is empty until there is something to draw.
func curveOf(points []watch.Point) template.HTML {
	c := watch.CurveOf(points, curveStep)
	if len(c.At) < 2 {
		return ""
	}
	return chart.Lines{Title: "Events a second", At: c.At, First: chart.Series{Name: "arrive", Values: c.In},
		Other: chart.Series{Name: "are counted", Values: c.Counted}, Unit: "/s"}.Draw()
}

// examine is the button: the doctor begins, and the page shows what it finds.
func examine(r *request) (result, error) {
	if r.server.Doctor.Kafka == nil {
		return result{}, &Problem{Status: 409, Title: "This console has no doctor", Detail: "It was started without Kafka.", Do: "Run tallygate doctor where Kafka can be reached."}
	}
	if !r.server.exam.begin(r.server.base, r.server.Doctor, r.Who.Name, r.server.Now) {
		return result{Text: "An examination is under way already: its results are below.", To: "/#doctor"}, nil
	}
	return result{Text: "The doctor has begun. Results appear below as they come.", To: "/#doctor"}, nil
}
