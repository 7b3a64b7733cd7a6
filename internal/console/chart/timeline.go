package chart

import (
	"fmt"
	"html/template"
	"slices"
	"time"
)

// Mark is an event of a moment, or from one to another.
type Mark struct {
	At, Until time.Time // Until is zero of what has no length
	Lane      string    // the row it is in, such as a rule
	Class     string    // block, shadow, warn, clear, command, rules, other
	Title     string    // what it is, in words
}

// Timeline shows events, each lane a row. The page lists the same marks as a table beside it.
type Timeline struct {
	Title    string
	From, To time.Time
	Marks    []Mark
}

const (
	laneHeight = 26.0
	laneLeft   = 150.0
	laneNames  = 22 // characters of a lane's name
	maxLanes   = 12 // further ones share the last row
	maxMarks   = 500
)

// Draw draws it.
func (t Timeline) Draw() template.HTML {
	lanes, row := t.lanes()
	bottom := laneHeight*float64(len(lanes)) + 4
	desc := fmt.Sprintf("%d entries, %s to %s UTC", len(t.Marks), t.From.UTC().Format("2006-01-02 15:04"), t.To.UTC().Format("2006-01-02 15:04"))
	b := open("timeline", t.Title, desc, plotWidth, bottom+20, false)
	span := max(t.To.Sub(t.From), time.Second)
	x := func(at time.Time) float64 {
		part := min(max(float64(at.Sub(t.From))/float64(span), 0), 1)
		return laneLeft + (plotWidth-laneLeft-plotRight)*part
	}
	t.ticks(b, x, bottom)
	for i, name := range lanes {
		y := laneHeight * float64(i)
		b.line("grid", laneLeft, y+laneHeight, plotWidth-plotRight, y+laneHeight)
		b.text("lane", laneLeft-8, y+laneHeight/2+4, "end", shorten(name))
	}
	for _, m := range t.Marks[:min(len(t.Marks), maxMarks)] {
		y := laneHeight*float64(row(m.Lane)) + 5
		class := "happened happened-" + m.Class
		if m.Until.After(m.At) {
			b.rect(class, x(m.At), y, max(2, x(m.Until)-x(m.At)), laneHeight-10, m.Title)
			continue
		}
		b.rect(class, x(m.At)-2, y, 4, laneHeight-10, m.Title)
	}
	return b.close()
}

// lanes are the rows in the order in which they first appear, and which row a lane is in.
func (t Timeline) lanes() (names []string, row func(string) int) {
	for _, m := range t.Marks {
		if !slices.Contains(names, m.Lane) {
			names = append(names, m.Lane)
		}
	}
	if len(names) > maxLanes {
		names = append(names[:maxLanes-1:maxLanes-1], "others")
	}
	return names, func(lane string) int {
		if i := slices.Index(names, lane); i >= 0 {
			return i
		}
		return len(names) - 1
	}
}

// ticks writes moments below: the day too, where the span has several.
func (t Timeline) ticks(b *svg, x func(time.Time) float64, bottom float64) {
	const parts = 4
	span := t.To.Sub(t.From)
	layout := "15:04:05"
	switch {
	case span > 36*time.Hour:
		layout = "Jan 2 15:04"
	case span > 10*time.Minute:
		layout = "15:04"
	}
	for i := range parts + 1 {
		at := t.From.Add(span * time.Duration(i) / parts)
		b.line("grid", x(at), 0, x(at), bottom)
		anchor := "middle"
		if i == parts {
			anchor = "end"
		}
		b.text("tick", x(at), bottom+14, anchor, at.UTC().Format(layout))
	}
}

func shorten(name string) string {
	if r := []rune(name); len(r) > laneNames {
		return string(r[:laneNames-1]) + "…"
	}
	return name
}
