package chart

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"
)

// Series is one line of a chart: a number for each of its moments, NaN where there is none.
type Series struct {
	Name   string
	Values []float64
}

// Lines are two lines over time, such as what comes and what is counted. What the first has above the second
// is the gap between them, and is drawn.
type Lines struct {
	Title        string
	At           []time.Time // UTC
	First, Other Series
	Unit         string // "/s"
}

// Draw draws them.
func (c Lines) Draw() template.HTML {
	most := max(highest(c.First.Values), highest(c.Other.Values))
	desc := fmt.Sprintf("%s %s%s, %s %s%s now", c.First.Name, lastText(c.First.Values), c.Unit, c.Other.Name, lastText(c.Other.Values), c.Unit)
	b := open("lines", c.Title, desc, plotWidth, plotHeight, false)
	top, base := nice(most), plotHeight-plotBottom
	y := func(v float64) float64 { return base - (base-plotTop)*min(max(v/top, 0), 1) }
	x := func(i int) float64 {
		return plotLeft + (plotWidth-plotLeft-plotRight)*float64(i)/float64(max(len(c.At)-1, 1))
	}
	for _, part := range []float64{0.5, 1} {
		b.line("grid", plotLeft, y(top*part), plotWidth-plotRight, y(top*part))
		b.text("tick", plotLeft-6, y(top*part)+4, "end", Short(top*part))
	}
	b.line("axis", plotLeft, base, plotWidth-plotRight, base)
	c.gap(b, x, y)
	c.path(b, "line line-first", c.First.Values, x, y)
	c.path(b, "line line-other", c.Other.Values, x, y)
	if n := len(c.At); n > 0 {
		b.text("tick", plotLeft, base+18, "start", c.At[0].UTC().Format("15:04:05"))
		b.text("tick", plotWidth-plotRight, base+18, "end", c.At[n-1].UTC().Format("15:04:05")+" UTC")
	}
	return framed(b.close(), c.Title+": "+desc, []string{"time (UTC)", c.First.Name, c.Other.Name}, c.rows())
}

// value is a series' number at a moment; NaN if it has none.
func value(list []float64, i int) float64 {
	if i < len(list) {
		return list[i]
	}
	return math.NaN()
}

func highest(list []float64) (most float64) {
	for _, v := range list {
		if !math.IsNaN(v) {
			most = max(most, v)
		}
	}
	return most
}

func lastText(list []float64) string {
	if len(list) == 0 {
		return "?"
	}
	return Short(list[len(list)-1])
}

// path draws a line, with holes where there is no number.
func (c Lines) path(b *svg, class string, values []float64, x func(int) float64, y func(float64) float64) {
	var d strings.Builder
	drawn := false
	for i := range c.At {
		v := value(values, i)
		if math.IsNaN(v) {
			drawn = false
			continue
		}
		move := "L"
		if !drawn {
			move = "M"
		}
		fmt.Fprintf(&d, "%s%s %s", move, num(x(i)), num(y(v)))
		drawn = true
	}
	if d.Len() > 0 {
		fmt.Fprintf(b, `<path class="%s" d="%s"/>`, class, d.String())
	}
}

// gap fills what the first line has above the other.
func (c Lines) gap(b *svg, x func(int) float64, y func(float64) float64) {
	for i := 1; i < len(c.At); i++ {
		f0, f1 := value(c.First.Values, i-1), value(c.First.Values, i)
		o0, o1 := value(c.Other.Values, i-1), value(c.Other.Values, i)
		if !(f0 >= o0 && f1 >= o1 && f0+f1 > o0+o1) { // also where a number is missing
			continue
		}
		fmt.Fprintf(b, `<path class="gap" d="M%s %sL%s %sL%[3]s %[5]sL%[1]s %[6]sZ"/>`,
			num(x(i-1)), num(y(f0)), num(x(i)), num(y(f1)), num(y(o1)), num(y(o0)))
	}
}

// tableRows bounds the rows of a chart's table, the latest.
const tableRows = 60

func (c Lines) rows() (rows [][]string) {
	for i := max(0, len(c.At)-tableRows); i < len(c.At); i++ {
		rows = append(rows, []string{c.At[i].UTC().Format("15:04:05"), Short(value(c.First.Values, i)), Short(value(c.Other.Values, i))})
	}
	return rows
}

// Spark is a small line without axes, for the cell of a table that also has the number.
type Spark struct {
	Title  string
	Values []float64 // NaN where there is none
}

// Draw draws it.
func (s Spark) Draw() template.HTML {
	const width, height = 80.0, 20.0
	top := highest(s.Values)
	b := open("spark", s.Title, fmt.Sprintf("at most %s, now %s", Short(top), lastText(s.Values)), width, height, true)
	if top <= 0 {
		top = 1
	}
	c := Lines{At: make([]time.Time, len(s.Values))}
	c.path(b, "line", s.Values,
		func(i int) float64 { return width * float64(i) / float64(max(len(s.Values)-1, 1)) },
		func(v float64) float64 { return height - 1 - (height-2)*v/top })
	return b.close()
}
