package chart

import (
	"fmt"
	"html/template"
	"math"
)

// Bar shows the used part of a limit, as one bar with a mark where the limit is. The text beside it is the page's
// own: the bar only shows it.
type Bar struct {
	Title string // what it is about: the rule's name
	Desc  string // the numbers in words: "80 of 100"

	Value, Limit float64 // a limit of 0 or less is none, unless it is Closed
	Closed       bool    // a limit of 0 allows nothing
	Shadow       bool    // it would be over, and nothing follows
	Exempt       bool
}

// The bar's limit is at this part of its width where the value is below; so that what is over shows.
const limitAt = 0.8

// Draw draws it.
func (c Bar) Draw() template.HTML {
	const width, height = 100.0, 10.0
	b := open("bar", c.Title, c.Desc, width, height, true)
	b.rect("bar-track", 0, 2, width, height-4, "")
	share, limit := 0.0, limitAt
	switch {
	case math.IsNaN(c.Value) || c.Value <= 0:
	case c.open():
		share = limitAt / 2
	case c.Value <= c.Limit:
		share = limitAt * c.Value / c.Limit
	default: // the whole width is the value; with far too much the limit still is to be seen
		share = 1
		limit = min(limitAt, max(0.04, c.Limit/c.Value))
	}
	b.rect(c.class(), 0, 2, width*share, height-4, "")
	if !c.open() {
		b.rect("bar-limit", width*limit-0.4, 0, 0.8, height, "")
	}
	return b.close()
}

// open reports whether there is no limit.
func (c Bar) open() bool { return c.Limit <= 0 && !c.Closed }

func (c Bar) class() string {
	level := "ok"
	switch {
	case c.Exempt:
		level = "exempt"
	case c.open():
		level = "unlimited"
	case c.over() && c.Shadow:
		level = "shadow"
	case c.over():
		level = "over"
	case c.Value > 0 && c.Value >= nearShare*c.Limit:
		level = "near"
	}
	return "bar-fill bar-" + level
}

// over reports whether the limit is reached, which one of 0 is by anything.
func (c Bar) over() bool { return c.Value > 0 && c.Value >= c.Limit }

// nearShare is the share of a limit from which on a count is near it.
const nearShare = 0.8

// Bucket counts the keys with a count from From to below To.
type Bucket struct {
	From, To         float64
	FromText, ToText string
	Keys             int
}

// Histogram counts keys by their counts, beside the limit.
type Histogram struct {
	Title     string
	Buckets   []Bucket
	Limit     float64 // 0 or less: none
	LimitText string
	Unit      string // of the counts: "events"; "" is "count"
}

const (
	plotWidth, plotHeight = 640.0, 220.0
	plotLeft, plotRight   = 48.0, 12.0
	plotTop, plotBottom   = 18.0, 30.0
)

// Draw draws it. Each bucket is as wide as the others, whatever its span: buckets double above the limit. The
// height is the number's logarithm where few buckets have nearly all keys, and the axis says so.
func (h Histogram) Draw() template.HTML {
	most, total, over := 0, 0, 0
	for _, k := range h.Buckets {
		most, total = max(most, k.Keys), total+k.Keys
		if h.Limit > 0 && k.From >= h.Limit {
			over += k.Keys
		}
	}
	desc := fmt.Sprintf("%d keys", total)
	if h.Limit > 0 {
		desc += fmt.Sprintf(", %d of them at or above the limit of %s", over, h.LimitText)
	}
	b := open("histogram", h.Title, desc, plotWidth, plotHeight, false)
	height := h.scale(most)
	base := plotHeight - plotBottom
	h.axis(b, most, height)
	step := (plotWidth - plotLeft - plotRight) / float64(max(len(h.Buckets), 1))
	every := max(1, (len(h.Buckets)+7)/8)
	for i, k := range h.Buckets {
		x := plotLeft + float64(i)*step
		class := "column"
		if h.Limit > 0 && k.From >= h.Limit {
			class = "column column-over"
		}
		y := height(k.Keys)
		b.rect(class, x+step*0.08, base-y, step*0.84, y, fmt.Sprintf("%s to %s: %d keys", k.FromText, k.ToText, k.Keys))
		if i%every == 0 {
			b.text("tick", x, base+16, "middle", k.FromText)
		}
	}
	if at, ok := h.limitX(step); ok {
		b.line("limit-line", at, plotTop-4, at, base)
		anchor := "start"
		if at > plotWidth*0.7 {
			anchor = "end"
		}
		b.text("limit-text", at+map[string]float64{"start": 5, "end": -5}[anchor], plotTop+6, anchor, "limit "+h.LimitText)
	}
	return framed(b.close(), h.Title+": "+desc, []string{"from", "to", "keys"}, h.rows())
}

func (h Histogram) rows() [][]string {
	rows := make([][]string, len(h.Buckets))
	for i, k := range h.Buckets {
		rows[i] = []string{k.FromText, k.ToText, fmt.Sprint(k.Keys)}
	}
	return rows
}

// logFrom is from how many times the median a bucket makes the height logarithmic.
const logFrom = 50

// scale returns how high a number is.
func (h Histogram) scale(most int) func(keys int) float64 {
	room := plotHeight - plotBottom - plotTop
	least := most
	for _, k := range h.Buckets {
		if k.Keys > 0 {
			least = min(least, k.Keys)
		}
	}
	top := nice(float64(most))
	if most > logFrom*max(least, 1) {
		full := math.Log1p(top)
		return func(keys int) float64 { return room * math.Log1p(float64(keys)) / full }
	}
	return func(keys int) float64 { return room * float64(keys) / top }
}

// axis draws lines at round numbers, where the scale has them.
func (h Histogram) axis(b *svg, most int, height func(int) float64) {
	base := plotHeight - plotBottom
	b.line("axis", plotLeft, base, plotWidth-plotRight, base)
	top := nice(float64(most))
	last := -20.0
	for _, part := range []float64{0.01, 0.1, 0.5, 1} {
		n := math.Round(top * part)
		y := height(int(n))
		if n < 1 || y-last < 20 {
			continue
		}
		last = y
		b.line("grid", plotLeft, base-y, plotWidth-plotRight, base-y)
		b.text("tick", plotLeft-6, base-y+4, "end", Short(n))
	}
}

// limitX returns the limit's position between the buckets.
func (h Histogram) limitX(step float64) (x float64, ok bool) {
	if h.Limit <= 0 || len(h.Buckets) == 0 {
		return 0, false
	}
	for i, k := range h.Buckets {
		if h.Limit < k.To || i == len(h.Buckets)-1 {
			part := 1.0
			if k.To > k.From {
				part = min(1, max(0, (h.Limit-k.From)/(k.To-k.From)))
			}
			return plotLeft + (float64(i)+part)*step, true
		}
	}
	return 0, false
}
