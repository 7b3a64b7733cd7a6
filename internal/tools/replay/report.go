package replay

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// write writes the summary for people.
func (s *Result) write(out io.Writer, all bool) error {
	w := &printer{w: out}
	if s.Interrupted {
		w.line("Interrupted: the summary covers what was read until then.")
	}
	w.line("%s events in %v (%s a second), %s to %s", Number(s.Events), time.Duration(s.Seconds*1e9).Round(time.Millisecond),
		Number(int(float64(s.Events)/max(s.Seconds, 1e-9))), clock(s.From), clock(s.To))
	s.notes(w)
	w.line("%s keys counted, %s of them over a limit; %s verdicts issued, %s events (%s) covered by a verdict in force",
		Number(s.Keys), Number(s.Blocked), Number(s.Verdicts), Number(s.Covered), Share(s.Covered, s.Events))
	if s.strict() {
		w.line("%s events (%s) above a strict limit: their requests would have been denied", Number(s.Denied), Share(s.Denied, s.Events))
	}
	if s.Against != nil {
		s.Against.write(w, all)
	}
	s.rules(w)
	s.chart(w)
	title := "Keys with the most covered events"
	if s.Denied > 0 {
		title = "Keys with the most covered or denied events"
	}
	keys(w, title, s.Top)
	return w.err
}

// WriteNotes lists what was not counted, if anything.
func (t *Tally) WriteNotes(out io.Writer) error {
	w := &printer{w: out}
	t.notes(w)
	return w.err
}

func (t *Tally) notes(w *printer) {
	for _, n := range []struct {
		count int
		what  string
	}{
		{t.Bad, "malformed events"},
		{t.TooOld, "events older than max_lateness on arrival: not counted"},
		{t.NoTime, "events without a time, their own or a broker's: not counted"},
		{t.Unmatched, "events that match no rule"},
		{t.Repeats, "events with an id that was counted before"},
		{t.Late, "times that an event was too late for its window"},
	} {
		if n.count > 0 {
			w.line("  %s %s", Number(n.count), n.what)
		}
	}
	if len(t.NotReplayed) > 0 {
		w.line("  not replayed, as these count requests before their actions: %s", strings.Join(t.NotReplayed, ", "))
	}
}

func (s *Result) rules(w *printer) {
	w.line("")
	rows := [][]string{{"RULE", "COUNTED", "VERDICTS", "KEYS", "EVENTS COVERED"}}
	strict := s.strict()
	if strict {
		rows[0] = append(rows[0], "DENIED")
	}
	for _, r := range s.Rules {
		name := r.Rule
		if r.Mode == verdict.Shadow {
			name += " (shadow)"
		}
		row := []string{name, Number(r.Counted), Number(r.Verdicts), Number(r.Keys), Number(r.Covered)}
		switch {
		case r.Strict:
			row = append(row, Number(r.Denied))
		case strict:
			row = append(row, "-")
		}
		rows = append(rows, row)
	}
	w.table(rows)
	for _, r := range s.Rules {
		for _, reason := range slices.Sorted(maps.Keys(r.Skipped)) {
			what := "not counted"
			if reason == rules.SkipLimit {
				what = "counted by `else`"
			}
			w.line("  %s: %s events %s: %s", r.Rule, Number(r.Skipped[reason]), what, reason)
		}
		if r.Blown != event.NoTime {
			w.line("  %s: the fuse blew at %s; later verdicts are in shadow mode", r.Rule, clock(r.Blown))
		}
		if r.Warnings > 0 {
			w.line("  %s: %s notices", r.Rule, Number(r.Warnings))
		}
	}
}

// strict reports whether a limit is strict.
func (t *Tally) strict() bool {
	return slices.ContainsFunc(t.Rules, func(r RuleTally) bool { return r.Strict })
}

const (
	chartWidth = 60
	bars       = " ▁▂▃▄▅▆▇█"
)

// chart draws the verdicts of each rule over time. A column is an hour, or a multiple of one.
func (s *Result) chart(w *printer) {
	if s.Verdicts == 0 {
		return
	}
	first, last := s.From-s.From%event.Hour, s.To
	step := event.Hour
	for int((last-first)/step) >= chartWidth {
		step += event.Hour
	}
	width := int((last-first)/step) + 1
	wide := 0
	for _, r := range s.Rules {
		wide = max(wide, len(r.Rule))
	}
	w.line("\nVerdicts per %s from %s", hours(step), clock(first))
	for _, r := range s.Rules {
		if r.Verdicts == 0 {
			continue
		}
		columns := make([]int, width)
		for _, h := range r.PerHour {
			columns[min(max(int((h.Hour-first)/step), 0), width-1)] += h.Verdicts
		}
		peak := slices.Max(columns)
		var line strings.Builder
		for _, n := range columns {
			line.WriteRune([]rune(bars)[(n*8+peak-1)/peak])
		}
		w.line("  %-*s %s at most %s", wide, r.Rule, line.String(), Number(peak))
	}
}

func hours(step event.Micros) string {
	if step == event.Hour {
		return "hour"
	}
	return fmt.Sprintf("%d hours", step/event.Hour)
}

func keys(w *printer, title string, list []KeyTally) {
	if len(list) == 0 {
		return
	}
	w.line("\n%s", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	denied := slices.ContainsFunc(list, func(k KeyTally) bool { return k.Denied > 0 })
	head := "  KEY\tVERDICTS\tEVENTS COVERED\tRULES"
	if denied {
		head = "  KEY\tVERDICTS\tEVENTS COVERED\tDENIED\tRULES"
	}
	fmt.Fprintln(t, head)
	for _, k := range list {
		row := []string{"  " + words.Cell(k.Key, maxKey), Number(k.Verdicts), Number(k.Covered)}
		if denied {
			row = append(row, Number(k.Denied))
		}
		fmt.Fprintln(t, strings.Join(append(row, strings.Join(k.Rules, ", ")), "\t"))
	}
	w.note(t.Flush())
}

// write writes what differs, and with all also what does not.
func (d *Diff) write(w *printer, all bool) {
	w.line("\nCompared with the old rules: %s keys are hit by the new rules only, %s by the old ones only, %s by both", Number(d.Newly), Number(d.NoLonger), Number(d.Both))
	w.line("%s events are covered or denied by the new rules only, %s by the old ones only, %s by both", Number(d.Events.Newly), Number(d.Events.NoLonger), Number(d.Events.Both))
	rows := [][]string{{"RULE", "VERDICTS", "BEFORE", "KEYS NEWLY", "KEYS NO LONGER", "EVENTS NEWLY", "EVENTS NO LONGER"}}
	denied := slices.ContainsFunc(d.Rules, func(r RuleDiff) bool { return r.Denied+r.OldDenied > 0 })
	if denied {
		rows[0] = append(rows[0], "DENIED", "BEFORE")
	}
	same := 0
	for _, r := range d.Rules {
		if r.same() && !all {
			same++
			continue
		}
		name := r.Rule
		if r.Only != "" {
			name += " (only in the " + r.Only + " rules)"
		}
		if r.Mode != r.OldMode {
			name += fmt.Sprintf(" (%s, before %s)", r.Mode, r.OldMode)
		}
		row := []string{name, Number(r.Verdicts), Number(r.OldVerdicts), Number(r.Newly), Number(r.NoLonger), Number(r.EventsNewly), Number(r.EventsNoLonger)}
		if denied {
			row = append(row, Number(r.Denied), Number(r.OldDenied))
		}
		rows = append(rows, row)
	}
	if len(rows) > 1 {
		w.table(rows)
	}
	switch {
	case same == 1:
		w.line("  of 1 rule nothing differs: --all shows it")
	case same > 1:
		w.line("  of %s rules nothing differs: --all shows them", Number(same))
	}
	keys(w, "Newly hit", d.TopNewly)
	keys(w, "No longer hit", d.TopGone)
	keyDiffs(w, "Hit by both, now harder", d.TopHarder)
	keyDiffs(w, "Hit by both, now less", d.TopMilder)
}

func keyDiffs(w *printer, title string, list []KeyDiff) {
	if len(list) == 0 {
		return
	}
	w.line("\n%s", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  KEY\tEVENTS COVERED OR DENIED\tBEFORE\tRULES")
	for _, k := range list {
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", words.Cell(k.Key, maxKey), Number(k.Out), Number(k.Old), strings.Join(k.Rules, ", "))
	}
	w.note(t.Flush())
}

// maxKey is the most characters of a key that a table shows.
const maxKey = 1024

// printer keeps the first error of many writes.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.note(err)
	return n, err
}

func (p *printer) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// table writes rows of a name and numbers: the name on the left, the numbers on the right.
func (p *printer) table(rows [][]string) {
	wide := 0
	for _, row := range rows {
		wide = max(wide, len(row[0]))
	}
	t := tabwriter.NewWriter(p, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		fmt.Fprintf(t, "%-*s\t%s\t\n", wide, row[0], strings.Join(row[1:], "\t"))
	}
	p.note(t.Flush())
}

func (p *printer) note(err error) {
	if p.err == nil {
		p.err = err
	}
}

// Number writes a count with thousands separators.
func Number(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Share writes a part of a whole as a percentage.
func Share(part, whole int) string {
	if whole == 0 {
		return "0%"
	}
	percent := 100 * float64(part) / float64(whole)
	if percent >= 10 { // where %.2g writes 1e+02
		if part < whole {
			percent = min(percent, 99)
		}
		return fmt.Sprintf("%.0f%%", percent)
	}
	return fmt.Sprintf("%.2g%%", percent)
}

func clock(m event.Micros) string {
	if m == event.NoTime {
		return "-"
	}
	return m.Time().Truncate(time.Millisecond).Format("2006-01-02T15:04:05.999Z07:00")
}
