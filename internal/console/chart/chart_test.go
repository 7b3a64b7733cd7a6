package chart

import (
	"encoding/xml"
	"fmt"
	"html/template"
	"math"
	"strings"
	"testing"
	"time"
)

// examples are a drawing of each kind, and at its limits.
func examples() map[string]template.HTML {
	at := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	moments := []time.Time{at, at.Add(time.Second), at.Add(2 * time.Second), at.Add(3 * time.Second)}
	buckets := []Bucket{{0, 10, "0", "10", 90000}, {10, 20, "10", "20", 400}, {20, 40, "20", "40", 3}}
	evil := `"><script>alert(1)</script>`
	return map[string]template.HTML{
		"bar":            Bar{Title: "r", Desc: "8 of 10", Value: 8, Limit: 10}.Draw(),
		"bar over":       Bar{Title: "r", Desc: "1000 of 10", Value: 1000, Limit: 10}.Draw(),
		"bar no number":  Bar{Title: evil, Value: math.NaN(), Limit: math.Inf(1)}.Draw(),
		"histogram":      Histogram{Title: "counts", Buckets: buckets, Limit: 20, LimitText: "20"}.Draw(),
		"histogram none": Histogram{Title: evil, LimitText: evil}.Draw(),
		"lines":          Lines{Title: "events", At: moments, First: Series{"in", []float64{5, 6, math.NaN(), 8}}, Other: Series{"counted", []float64{5, 4, 3, 2}}, Unit: "/s"}.Draw(),
		"lines none":     Lines{Title: evil, First: Series{Name: evil}}.Draw(),
		"lines short":    Lines{Title: "events", At: moments, First: Series{"in", []float64{1}}}.Draw(),
		"spark":          Spark{"denials", []float64{1, 2, 3, 0}}.Draw(),
		"spark none":     Spark{evil, nil}.Draw(),
		"timeline": Timeline{"uid", at, at.Add(48 * time.Hour), []Mark{
			{At: at, Until: at.Add(time.Hour), Lane: "search-combined-and-a-long-name", Class: "block", Title: evil}, {At: at.Add(-time.Hour), Lane: evil, Class: "command"}}}.Draw(),
		"timeline none": Timeline{Title: "nothing"}.Draw(),
	}
}

// A browser shows a drawing that is not well-formed in part only; and a text that is not escaped is a hole. No
// drawing has a style of its own: the policy of the console's pages forbids it.
func TestDrawingsAreWellFormed(t *testing.T) {
	for name, drawn := range examples() {
		d := xml.NewDecoder(strings.NewReader(string(drawn)))
		images := 0
		for {
			token, err := d.Token()
			if err != nil {
				if err.Error() != "EOF" {
					t.Errorf("%s: %v in\n%s", name, err, drawn)
				}
				break
			}
			start, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			if start.Name.Local == "script" {
				t.Errorf("%s: a text became a script:\n%s", name, drawn)
			}
			for _, a := range start.Attr {
				if a.Name.Local == "style" || strings.HasPrefix(a.Name.Local, "on") || strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s: %s=%q in\n%s", name, a.Name.Local, a.Value, drawn)
				}
				if a.Name.Local == "role" && a.Value == "img" {
					images++
				}
			}
		}
		if images != 1 || !strings.Contains(string(drawn), "<title>") || !strings.Contains(string(drawn), "aria-label=") {
			t.Errorf("%s: a screen reader is told of %d images:\n%s", name, images, drawn)
		}
	}
}

// Who cannot see the drawing reads the same numbers in a table.
func TestTheTableHasTheNumbers(t *testing.T) {
	all := examples()
	for name, want := range map[string][]string{
		"histogram": {"3 of them at or above the limit of 20", "<td>20</td><td>40</td><td>3</td>", "limit-line", "column-over"},
		"lines":     {"in 8/s, counted 2/s now", "<td>10:00:01</td><td>6</td><td>4</td>", "<td>10:00:02</td><td>?</td><td>3</td>", `class="gap"`},
	} {
		for _, part := range want {
			if !strings.Contains(string(all[name]), part) {
				t.Errorf("%s has no %s:\n%s", name, part, all[name])
			}
		}
	}
}

func TestBarsSayHowCloseItIs(t *testing.T) {
	for want, c := range map[string]Bar{
		"bar-ok": {Value: 7, Limit: 10}, "bar-near": {Value: 8, Limit: 10}, "bar-over": {Value: 10, Limit: 10}, "bar-unlimited": {Value: 10},
		"bar-fill bar-over": {Value: 1, Closed: true}, "bar-limit": {Closed: true},
		"bar-shadow": {Value: 11, Limit: 10, Shadow: true}, "bar-exempt": {Value: 11, Limit: 10, Exempt: true},
	} {
		if got := string(c.Draw()); !strings.Contains(got, want+`"`) {
			t.Errorf("%v is no %s: %s", c, want, got)
		}
	}
}

func TestNumbersAreShort(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 0.126: "0.13", 9.999: "10", 12.34: "12.3", 999.4: "999", 999.6: "1k", 1234: "1.23k", 1234567: "1.23M", -5: "-5", math.NaN(): "?", 1e18: "1.00e+18"} {
		if got := Short(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
	for x, want := range map[float64]float64{0: 1, 0.7: 0.8, 12: 15, 99: 100, 100: 100, 101: 150} {
		if got := nice(x); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("an axis to %v ends at %v, want %v", x, got, want)
		}
	}
}
