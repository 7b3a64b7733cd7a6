package suggest

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/tools/replay"
)

// maxKey is the most characters of a key that a table shows.
const maxKey = 1024

// Write writes the result for people.
func (r *Result) Write(out io.Writer) error {
	w := &printer{w: out}
	if r.Stopped != "" {
		w.line("Stopped %s: what follows covers the events until then.", r.Stopped)
	}
	w.line("%s events in %.1fs, %s to %s%s", replay.Number(r.Events), r.Seconds, words.Clock(r.From), words.Clock(r.To), r.span())
	w.note(r.tally.WriteNotes(w))
	for i := range r.Limits {
		r.Limits[i].write(w)
	}
	w.line("\nSuggested, for %s of the %s:\n\n%s", r.Share, r.Of, strings.TrimSuffix(r.Rules, "\n"))
	return w.err
}

func (r *Result) span() string {
	if r.To <= r.From {
		return ""
	}
	return " (" + spanText(r.To-r.From) + ")"
}

// write writes a limit's section: how high counts get, then which limit would hit whom, then who these are.
func (l *Limit) write(w *printer) {
	w.line("\n%s: by %s, %s", l.Rule, strings.Join(l.Key, ", "), l.Over)
	if l.Keys > 0 {
		w.line("  %s keys had %s events. The highest count of a key in a window:", replay.Number(l.Keys), replay.Number(l.Events))
		var parts []string
		for _, q := range l.Highest {
			parts = append(parts, fmt.Sprintf("%s of them at most %v", q.Share, q.Count))
		}
		w.line("  %s", strings.Replace(strings.Join(parts, ", "), "100% of them at most", "all", 1))
		l.choices(w)
		l.top(w)
	}
	if l.Behind != nil {
		w.line("  %s.", l.Behind.Says)
	}
	for _, text := range l.Warnings {
		w.line("  warning: %s", text)
	}
}

// choices shows the least limit beside the one that people would write: who wants to be nearer to the share takes it.
func (l *Limit) choices(w *printer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "  %-15s\tLEAST\t%s\tKEYS OVER\tEVENTS OVER\t\t\n", "TO HIT AT MOST", strings.ToUpper(l.Field))
	for _, c := range l.Choices {
		fmt.Fprintf(t, "  %-15s\t%v\t%s\t%s\t%s\t%s\t\n", c.Share+" of "+c.Of, c.Least, c.Written, replay.Number(c.Keys),
			replay.Number(c.Events), replay.Share(c.Events, l.Events))
	}
	w.note(t.Flush())
}

// top shows keys as they are, as replay does: whoever runs this command has the events. The console masks them.
func (l *Limit) top(w *printer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "  KEY\tHIGHEST\tAT\tEVENTS\tAVERAGE\tHOURS OF DAY"
	if l.Behind != nil {
		head += "\tUIDS"
	}
	fmt.Fprintln(t, head)
	for _, k := range l.Top {
		row := fmt.Sprintf("  %s\t%v\t%s\t%s\t%v\t%d", words.Cell(k.Key, maxKey), k.Highest, words.Clock(k.At), replay.Number(k.Events), k.Average, k.Hours)
		if l.Behind != nil {
			row += "\t" + users(k)
		}
		fmt.Fprintln(t, row)
	}
	w.note(t.Flush())
}

// users writes how many stand behind a key, and whether that is an estimate.
func users(k Key) string {
	if k.Users > exactUsers {
		return fmt.Sprintf("about %d", k.Users)
	}
	return fmt.Sprint(k.Users)
}

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

func (p *printer) note(err error) {
	if p.err == nil {
		p.err = err
	}
}
