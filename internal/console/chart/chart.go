// Package chart draws the console's charts as SVG, on the server. A chart has no style of its own: the console's
// style sheet has its classes, for light and for dark pages. Each has a name and a description for screen
// readers, and charts of more than one number a table with the same numbers.
package chart

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// svg builds one drawing. What it is given as text is escaped.
type svg struct{ strings.Builder }

// open begins a drawing of a size, in units that the style sheet scales.
func open(class, title, desc string, width, height float64, stretched bool) *svg {
	b := &svg{}
	fmt.Fprintf(b, `<svg class="chart %s" role="img" aria-label="%s" viewBox="0 0 %s %s" focusable="false"`,
		class, template.HTMLEscapeString(join(title, desc)), num(width), num(height))
	if stretched {
		b.WriteString(` preserveAspectRatio="none"`)
	}
	b.WriteString(">")
	b.tag("title", title)
	if desc != "" {
		b.tag("desc", desc)
	}
	return b
}

func join(title, desc string) string {
	if desc == "" {
		return title
	}
	return title + ": " + desc
}

func (b *svg) tag(name, text string) {
	fmt.Fprintf(b, "<%s>%s</%[1]s>", name, template.HTMLEscapeString(text))
}

// rect draws a rectangle; one without a size is left out. A title is shown to whoever points at it.
func (b *svg) rect(class string, x, y, width, height float64, title string) {
	if width <= 0 || height <= 0 {
		return
	}
	fmt.Fprintf(b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"`, class, num(x), num(y), num(width), num(height))
	if title == "" {
		b.WriteString("/>")
		return
	}
	b.WriteString(">")
	b.tag("title", title)
	b.WriteString("</rect>")
}

func (b *svg) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(b, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, num(x1), num(y1), num(x2), num(y2))
}

// text writes text at a place; anchor is start, middle or end.
func (b *svg) text(class string, x, y float64, anchor, text string) {
	fmt.Fprintf(b, `<text class="%s" x="%s" y="%s" text-anchor="%s">%s</text>`, class, num(x), num(y), anchor, template.HTMLEscapeString(text))
}

func (b *svg) close() template.HTML {
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // every text in it was escaped
}

// num writes a coordinate, to a tenth.
func num(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return "0"
	}
	return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
}

// framed puts a drawing into a figure with a caption, and below it the same numbers as a table. The drawing
// scrolls by itself where the page is narrower, also by keyboard.
func framed(drawing template.HTML, caption string, heads []string, rows [][]string) template.HTML {
	var b strings.Builder
	esc := template.HTMLEscapeString
	fmt.Fprintf(&b, `<figure class="chart-figure"><figcaption>%s</figcaption><div class="chart-scroll" tabindex="0" role="group" aria-label="%[1]s, drawing">`, esc(caption))
	b.WriteString(string(drawing))
	b.WriteString(`</div><details class="chart-table"><summary>The numbers as a table</summary><table><thead><tr>`)
	for _, h := range heads {
		fmt.Fprintf(&b, `<th scope="col">%s</th>`, esc(h))
	}
	b.WriteString("</tr></thead><tbody>")
	for _, row := range rows {
		b.WriteString("<tr>")
		for _, cell := range row {
			fmt.Fprintf(&b, "<td>%s</td>", esc(cell))
		}
		b.WriteString("</tr>")
	}
	b.WriteString("</tbody></table></details></figure>")
	return template.HTML(b.String()) //nolint:gosec // the drawing is from close, and every text was escaped
}

// Short writes a number with at most three digits and a unit: 1234567 is 1.23M.
func Short(x float64) string {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return "?"
	case x < 0:
		return "-" + Short(-x)
	case x >= 999.5:
		for i, unit := range []string{"k", "M", "G", "T"} {
			if y := x / math.Pow(1000, float64(i+1)); y < 999.5 {
				return digits(y) + unit
			}
		}
		return strconv.FormatFloat(x, 'e', 2, 64)
	}
	return digits(x)
}

// digits writes a number below 1000 with at most three digits.
func digits(x float64) string {
	behind := 0
	switch {
	case x < 9.995:
		behind = 2
	case x < 99.95:
		behind = 1
	}
	text := strconv.FormatFloat(x, 'f', behind, 64)
	if behind > 0 {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// nice is a round number at or above x, for the end of an axis.
func nice(x float64) float64 {
	if !(x > 0) || math.IsInf(x, 0) {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(x)))
	for _, step := range []float64{1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10} {
		if step*unit >= x*(1-1e-9) {
			return step * unit
		}
	}
	return 10 * unit
}
