package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// tally is the outcome of all faults, over all runs.
type tally struct {
	runs, events, differences int
	packs, whole              int // records of forwarded events
	order                     []string
	rows                      map[string]*row
}

// row is one fault's.
type row struct {
	times, differences int
	lasted, inStep     []time.Duration // inStep only of those that came alone
}

func (c *tally) row(name string) *row {
	if c.rows == nil {
		c.rows = map[string]*row{}
	}
	if c.rows[name] == nil {
		c.rows[name] = &row{}
		c.order = append(c.order, name)
	}
	return c.rows[name]
}

// injected notes one step's faults.
func (c *tally) injected(faults []*fault, lasted, inStep time.Duration) {
	for _, f := range faults {
		r := c.row(f.String())
		r.times++
		r.lasted = append(r.lasted, lasted)
		if len(faults) == 1 && inStep > 0 {
			r.inStep = append(r.inStep, inStep)
		}
	}
}

// forwards counts the records that events were forwarded in.
func (c *tally) forwards(s *stage) {
	const kindPack = 5
	packs, whole := 0, 0
	for p := range s.partitions {
		s.records(s.names.Loop, p, func(rec *sarama.ConsumerMessage) {
			switch {
			case len(rec.Key) > 0 || len(rec.Value) < 2:
			case rec.Value[1] == kindPack:
				packs++
			default:
				whole++
			}
		})
	}
	s.t.Logf("%d packs and %d whole events were forwarded", packs, whole)
	c.packs, c.whole = c.packs+packs, c.whole+whole
}

// blame counts a run's differences for every fault that it had.
func (c *tally) blame(p *plan, differences int) {
	c.runs++
	c.events += p.events
	c.differences += differences
	had := map[string]bool{}
	for _, s := range p.steps {
		for _, f := range s.faults {
			if name := f.String(); !had[name] {
				had[name] = true
				c.row(name).differences += differences
			}
		}
	}
}

// String is a table in Markdown.
func (c *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs, %d events, %d differences; %d packs and %d whole events were forwarded\n\n", c.runs, c.events, c.differences, c.packs, c.whole)
	fmt.Fprintf(&b, "| fault | times | differences | it lasted, median | in step again after, median | at most |\n|---|--:|--:|--:|--:|--:|\n")
	slices.Sort(c.order)
	for _, name := range c.order {
		r := c.rows[name]
		slices.Sort(r.lasted)
		slices.Sort(r.inStep)
		fmt.Fprintf(&b, "| %s | %d | %d | %s | %s | %s |\n", name, r.times, r.differences, at(r.lasted, 0.5), at(r.inStep, 0.5), at(r.inStep, 1))
	}
	return b.String()
}

// at is a quantile of sorted durations.
func at(sorted []time.Duration, q float64) string {
	if len(sorted) == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f s", sorted[int(q*float64(len(sorted)-1))].Seconds())
}

func (c *tally) writeFile(path string) error {
	return os.WriteFile(path, []byte(c.String()), 0o644)
}
