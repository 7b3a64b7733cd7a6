package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// histogram is a Prometheus histogram: how many observations are at most each bound.
type histogram struct {
	bounds []float64 // the last is +Inf
	counts []float64 // cumulative
	sum    float64
}

const (
	metricName     = "tallygate_event_to_verdict_seconds"
	checkpointName = "tallygate_checkpoint_duration_seconds"
)

// measures are the aggregator's own.
type measures struct{ verdicts, checkpoints histogram }

func scrape(ctx context.Context, addr string) (m measures, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return m, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return m, err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return m, err
	}
	if m.verdicts, err = parseHistogram(bytes.NewReader(page), metricName); err == nil {
		m.checkpoints, err = parseHistogram(bytes.NewReader(page), checkpointName)
	}
	return m, err
}

// reportCheckpoints says how long checkpoints took.
func reportCheckpoints(h histogram) {
	if h.count() == 0 {
		return
	}
	_, half := h.bucket(0.5)
	_, most := h.bucket(0.99)
	_, all := h.bucket(1)
	fmt.Printf("  %.0f checkpoints of a partition: mean %v, p50 at most %v, p99 at most %v, all at most %v\n",
		h.count(), seconds(h.sum/h.count()), seconds(half), seconds(most), seconds(all))
}

func parseHistogram(page io.Reader, metricName string) (h histogram, err error) {
	s := bufio.NewScanner(page)
	for s.Scan() {
		name, value, ok := strings.Cut(s.Text(), " ")
		if !ok || !strings.HasPrefix(name, metricName) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return h, err
		}
		if le, ok := strings.CutPrefix(name, metricName+`_bucket{le="`); ok {
			bound, err := strconv.ParseFloat(strings.TrimSuffix(le, `"}`), 64)
			if err != nil {
				return h, err
			}
			h.bounds, h.counts = append(h.bounds, bound), append(h.counts, v)
		} else if name == metricName+"_sum" {
			h.sum = v
		}
	}
	if len(h.bounds) == 0 {
		return h, fmt.Errorf("no %s among the metrics", metricName)
	}
	return h, s.Err()
}

func (h histogram) minus(before histogram) histogram {
	d := histogram{bounds: h.bounds, counts: slices.Clone(h.counts), sum: h.sum - before.sum}
	for i := range before.counts {
		d.counts[i] -= before.counts[i]
	}
	return d
}

func (h histogram) count() float64 { return h.counts[len(h.counts)-1] }

// bucket returns the bounds between which a quantile lies.
func (h histogram) bucket(q float64) (above, atMost float64) {
	for i, c := range h.counts {
		if c >= q*h.count() {
			if i > 0 {
				above = h.bounds[i-1]
			}
			return above, h.bounds[i]
		}
	}
	return above, math.Inf(1)
}

// agree compares the aggregator's metric with what Kafka's timestamps and the enforcer say.
// The metric ends when the verdict is acknowledged: after the broker has appended it, and
// before an enforcer can have it. So its quantiles lie between those two. It takes the
// event's broker time as it is, in whole milliseconds.
func agree(h histogram, ways []*way) error {
	least, most := make([]float64, len(ways)), make([]float64, len(ways))
	for i, w := range ways {
		least[i] = w.verdict.appended.Sub(w.event.appended).Seconds()
		most[i] = w.received.Sub(w.event.appended.Add(-cutOff)).Seconds()
	}
	slices.Sort(least)
	slices.Sort(most)
	fmt.Printf("  the metric %s:", metricName)
	wrong := ""
	for _, q := range []float64{0.5, 0.9, 0.99} {
		above, atMost := h.bucket(q)
		i := min(len(ways)-1, int(q*float64(len(ways))))
		fmt.Printf("  p%g %v to %v (seen %v to %v)", 100*q, seconds(above), seconds(atMost), seconds(least[i]), seconds(most[i]))
		if slack := 2 * time.Millisecond.Seconds(); atMost < least[i]-slack || above > most[i]+slack {
			wrong += fmt.Sprintf(" p%g", 100*q)
		}
	}
	fmt.Printf("  mean %v\n", seconds(h.sum/h.count()))
	if h.count() != float64(len(ways)) {
		return fmt.Errorf("%s counts %.0f verdicts, %d fell", metricName, h.count(), len(ways))
	}
	if wrong != "" {
		return fmt.Errorf("%s does not agree with what was measured at%s", metricName, wrong)
	}
	return nil
}

func seconds(s float64) time.Duration {
	if math.IsInf(s, 1) {
		return math.MaxInt64
	}
	return time.Duration(s * float64(time.Second)).Round(10 * time.Microsecond)
}
