package watch

import (
	"math"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/health"
)

// Numbers are those of the overview. A rate that is unknown is NaN, a count that is unknown -1.
type Numbers struct {
	In, Counted float64 // records of the event topic a second: that arrive, and that are counted
	Lag         int64   // records that arrived and are not counted
	LagTime     time.Duration
	Worst       int32 // the partition of the greatest LagTime; -1: none lags
	Verdicts    float64
	Denials     float64
	Blocked     int           // keys with an enforced block, or else verdicts in force
	InForce     bool          // Blocked are verdicts in force: no enforcer says more
	P99         time.Duration // from an event to its denial; 0: unknown
	ToVerdict   bool          // P99 is that to the verdict: no enforcer says more
	Enforcers   int
	InDoubt     int // of them: stale, off, not heard of, or without a blocklist
	DeadLetters float64
	Overshoot   float64 // events above a limit that were let through
}

// Point is a moment of the history: totals since the polls began; NaN what was unknown then.
type Point struct {
	At                                                    time.Time
	In, Counted, Verdicts, Denials, DeadLetters, Overshot float64
}

const (
	historySpan = 15 * time.Minute
	historyStep = time.Second
	rateOver    = 5 * time.Second
)

// history is the latest points, the oldest first.
type history struct {
	points   []Point
	verdicts counters
	denials  counters
	dead     counters
	overshot counters
	verdict  spread // event to verdict
	denial   spread // event to denial
}

// counters adds up counters of several programs that may restart.
type counters struct {
	last  map[string]float64
	total float64
	known bool
}

// take enters the counters of now, by program.
func (c *counters) take(now map[string]float64) {
	for name, v := range now {
		switch was, there := c.last[name]; {
		case !there && !c.known: // what it counted before the polls began is not counted
		case !there || v < was: // it has started since
			c.total += v
		default:
			c.total += v - was
		}
	}
	c.last, c.known = now, true
}

func (c *counters) now() float64 {
	if !c.known {
		return math.NaN()
	}
	return c.total
}

// add enters a moment.
func (h *history) add(r *health.Observations) {
	p := Point{At: r.Now, In: math.NaN(), Counted: math.NaN()}
	if r.Kafka.Known(r.Now) {
		p.In = float64(r.Kafka.Value.Events.End())
		if lag := lagOf(r); lag >= 0 {
			p.Counted = p.In - float64(lag)
		}
	}
	if r.Cluster.Known(r.Now) {
		members := r.Cluster.Value.Members
		h.verdicts.take(sums(members, "tallygate_verdicts_total", func(l map[string]string) bool { return l["state"] == "block" }))
		h.dead.take(sums(members, "tallygate_events_total", func(l map[string]string) bool { return l["result"] == "dead_letter" }))
		h.overshot.take(sums(members, "tallygate_overshoot_events_total", func(l map[string]string) bool { return l["mode"] == "enforce" }))
		h.verdict.take(r.Now, allOf(members, "tallygate_event_to_verdict_seconds"))
	}
	if r.Enforcers.Known(r.Now) {
		denied := map[string]float64{}
		for _, b := range r.Enforcers.Value {
			denied[b.ID] = float64(b.Denied)
		}
		h.denials.take(denied)
	}
	if r.Enforced.Known(r.Now.Add(-enforcedEvery)) {
		h.denial.take(r.Now, r.Enforced.Value.Latency)
	}
	p.Verdicts, p.Denials, p.DeadLetters, p.Overshot = h.verdicts.now(), h.denials.now(), h.dead.now(), h.overshot.now()
	h.points = append(h.points, p)
	if most := int(historySpan / historyStep); len(h.points) > most {
		h.points = append([]Point(nil), h.points[len(h.points)-most:]...) // published ones are not changed
	}
}

// lagOf returns the number of records that are not counted, by their owners; if none answers, by the group's offsets.
// -1 is unknown.
func lagOf(r *health.Observations) (sum int64) {
	if !r.Cluster.Known(r.Now) || len(r.Cluster.Value.Members) == 0 {
		if len(r.Kafka.Value.Committed) == 0 {
			return -1
		}
		for p, end := range r.Kafka.Value.Events.Ends {
			sum += max(0, end-r.Kafka.Value.Committed[p])
		}
		return sum
	}
	owned := map[string]bool{}
	others := map[string]int64{}
	for _, m := range r.Cluster.Value.Members {
		if m.Aggregator != nil {
			for _, p := range m.Aggregator.Partitions {
				owned[label(p.Partition)] = true
				sum += p.Lag
			}
		}
		for _, s := range m.Metrics["tallygate_partition_lag"] {
			p := s.Labels["partition"]
			others[p] = max(others[p], int64(s.Value))
		}
	}
	for p, lag := range others {
		if !owned[p] {
			sum += lag
		}
	}
	return sum
}

// sums adds up a metric's samples by program.
func sums(members []api.Status, metric string, take func(labels map[string]string) bool) map[string]float64 {
	all := map[string]float64{}
	for _, m := range members {
		name := m.Instance + " " + m.Started.String()
		all[name] = 0
		for _, s := range m.Metrics[metric] {
			if take(s.Labels) {
				all[name] += s.Value
			}
		}
	}
	return all
}

func allOf(members []api.Status, metric string) (all []api.Sample) {
	for _, m := range members {
		all = append(all, m.Metrics[metric]...)
	}
	return all
}

// numbers are those of the latest point.
func (h *history) numbers(r *health.Observations) Numbers {
	n := Numbers{
		In: h.rate(func(p *Point) float64 { return p.In }), Counted: h.rate(func(p *Point) float64 { return p.Counted }),
		Verdicts: h.rate(func(p *Point) float64 { return p.Verdicts }), Denials: h.rate(func(p *Point) float64 { return p.Denials }),
		DeadLetters: h.rate(func(p *Point) float64 { return p.DeadLetters }), Overshoot: h.rate(func(p *Point) float64 { return p.Overshot }),
		Lag: lagOf(r), Worst: -1, Blocked: -1, Enforcers: -1,
	}
	if r.Cluster.Known(r.Now) {
		if lag, worst := health.WorstLag(r); lag > 0 {
			n.LagTime, n.Worst = lag, worst
		}
	}
	if n.P99 = h.denial.quantile(r.Now, 0.99); n.P99 == 0 {
		n.P99 = h.verdict.quantile(r.Now, 0.99)
		n.ToVerdict = n.P99 > 0
	}
	if r.Redis.Known(r.Now) {
		n.Blocked, n.InForce = int(r.Redis.Value.Entries()), true
	}
	if r.Enforced.Known(r.Now.Add(-enforcedEvery)) && r.Enforced.Value.Blocked >= 0 {
		n.Blocked, n.InForce = r.Enforced.Value.Blocked, false
	}
	if !r.Enforcers.At.IsZero() {
		n.Enforcers = len(r.Enforcers.Value)
		for i := range r.Enforcers.Value {
			b := &r.Enforcers.Value[i]
			if b.Stale || !b.Enabled || b.Staleness < 0 || b.Age >= health.Unheard || !r.Enforcers.Known(r.Now) {
				n.InDoubt++
			}
		}
	}
	return n
}

// rate returns the growth of a total a second, over the latest few seconds.
func (h *history) rate(of func(*Point) float64) float64 {
	return rateBetween(h.points, len(h.points)-1, rateOver, of)
}

// rateBetween is the same up to a point. It is NaN if the total is unknown at either end.
func rateBetween(points []Point, to int, over time.Duration, of func(*Point) float64) float64 {
	if to < 1 {
		return math.NaN()
	}
	last := &points[to]
	from := to - 1
	for from > 0 && last.At.Sub(points[from].At) < over {
		from--
	}
	took := last.At.Sub(points[from].At).Seconds()
	if took <= 0 {
		return math.NaN()
	}
	return max(0, (of(last)-of(&points[from]))/took) // of NaN it is NaN
}

// Curve is the two lines of the overview, over the latest minutes.
type Curve struct {
	At          []time.Time
	In, Counted []float64 // a second; NaN: unknown then
}

// CurveOf draws points at whole steps, so that a curve changes once a step.
func CurveOf(points []Point, step time.Duration) Curve {
	var c Curve
	for i := 1; i+1 < len(points); i++ {
		if points[i].At.Truncate(step).Equal(points[i+1].At.Truncate(step)) {
			continue
		}
		c.At = append(c.At, points[i].At)
		c.In = append(c.In, rateBetween(points, i, step, func(p *Point) float64 { return p.In }))
		c.Counted = append(c.Counted, rateBetween(points, i, step, func(p *Point) float64 { return p.Counted }))
	}
	return c
}
