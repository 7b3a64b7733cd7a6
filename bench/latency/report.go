package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// report prints what was measured. It is an error when the aggregator's own metric says
// something else.
func (b *bench) report(ctx context.Context, before measures, redis redisStats) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var took []time.Duration
	for _, p := range b.probed {
		if p.kind == measured {
			took = append(took, p.denied.Sub(p.emitted))
		}
	}
	slices.Sort(took)
	fmt.Printf("%6d events/s of other traffic: %s\n", b.rate, quantiles(took))
	if b.attack > 0 {
		b.reportAttack()
	} else {
		b.line(fmt.Sprintf("Denial/rate=%d", b.rate), took)
	}
	after, err := scrape(ctx, b.metrics)
	if err != nil {
		return err
	}
	reportCheckpoints(after.checkpoints.minus(before.checkpoints))
	if !b.timed {
		return nil
	}
	all, err := b.ways(ctx)
	if err != nil {
		return fmt.Errorf("read where the time went: %w", err)
	}
	b.reportFromLog(all)
	for _, k := range []kind{measured, attacker} {
		b.printStages(k, slices.DeleteFunc(slices.Clone(all), func(w *way) bool { return w.kind != k }))
	}
	if err := b.reportRedis(ctx, redis); err != nil {
		return err
	}
	err = agree(after.verdicts.minus(before.verdicts), all)
	if b.near != b.kafka { // so far apart that a few probes decide
		if err != nil {
			fmt.Println(" ", err)
		}
		return nil
	}
	return err
}

// reportFromLog prints how long it took from where the event was in Kafka: what Emit and its way there took is
// left out.
func (b *bench) reportFromLog(all []*way) {
	var took []time.Duration
	for _, w := range all {
		if w.kind == measured {
			took = append(took, w.denied.Sub(w.event.appended))
		}
	}
	slices.Sort(took)
	fmt.Printf("  from the event's append to denied   %s\n", quantiles(took))
	if b.delay > 0 || b.replicas > 0 {
		b.line(fmt.Sprintf("Appended/delay=%v/replicas=%v/rate=%d", b.delay, b.replicas, b.rate), took)
	}
}

// line prints a sorted list in Go's benchmark format, if it is asked for.
func (b *bench) line(name string, sorted []time.Duration) {
	if b.lines && len(sorted) > 0 {
		ms := func(q float64) float64 { return quantile(sorted, q).Seconds() * 1e3 }
		fmt.Printf("Benchmark%s %d %.2f p50-ms %.2f p90-ms %.2f p99-ms %.2f p99.9-ms\n", name, len(sorted), ms(0.5), ms(0.9), ms(0.99), ms(0.999))
	}
}

// quantiles is a sorted list for people.
func quantiles(sorted []time.Duration) string {
	return fmt.Sprintf("p50 %v  p90 %v  p99 %v  p99.9 %v  worst %v",
		quantile(sorted, 0.5), quantile(sorted, 0.9), quantile(sorted, 0.99), quantile(sorted, 0.999), quantile(sorted, 1))
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Round(10 * time.Microsecond)
}

// stage is a part of the way, between two moments of it.
type stage struct {
	name string
	from func(w *way) time.Time
	to   func(w *way) time.Time
}

var stages = []stage{
	{"emit: linger and batching", func(w *way) time.Time { return w.emitted }, func(w *way) time.Time { return w.event.sent }},
	{"event appended in Kafka", func(w *way) time.Time { return w.event.sent }, func(w *way) time.Time { return w.event.appended }},
	{"fetched, counted, state queued", func(w *way) time.Time { return w.event.appended }, func(w *way) time.Time { return w.state.sent }},
	{"state appended in Kafka", func(w *way) time.Time { return w.state.sent }, func(w *way) time.Time { return w.state.appended }},
	{"acknowledged, verdict queued", func(w *way) time.Time { return w.state.appended }, func(w *way) time.Time { return w.verdict.sent }},
	{"verdict appended in Kafka", func(w *way) time.Time { return w.verdict.sent }, func(w *way) time.Time { return w.verdict.appended }},
	{"acknowledged, publisher, Redis, feed", func(w *way) time.Time { return w.verdict.appended }, func(w *way) time.Time { return w.received }},
	{"table", func(w *way) time.Time { return w.received }, func(w *way) time.Time { return w.denied }},
}

// printStages prints the mean of each stage, of all events and of the slowest hundredth, and
// its own 99th percentile. Kafka keeps whole milliseconds: single values are that coarse, but
// not their means.
func (b *bench) printStages(k kind, ways []*way) {
	if len(ways) == 0 {
		return
	}
	slices.SortFunc(ways, func(a, b *way) int { return int(a.took() - b.took()) })
	slow := ways[len(ways)-max(1, len(ways)/100):]
	fmt.Printf("  %-38s %10s %10s %22s\n", "where the time goes, "+string(k)+"s", "mean", "p99", "mean of the slowest 1%")
	row := func(name string, of func(w *way) time.Duration) {
		all := make([]time.Duration, len(ways))
		for i, w := range ways {
			all[i] = of(w)
		}
		tail := mean(all[len(all)-len(slow):])
		avg := mean(all)
		slices.Sort(all)
		if b.lines && b.attack == 0 {
			fmt.Printf("BenchmarkStage/rate=%d/%s %d %.2f mean-ms %.2f p99-ms\n", b.rate, strings.ReplaceAll(name, " ", "_"), len(all),
				avg.Seconds()*1e3, quantile(all, 0.99).Seconds()*1e3)
		}
		fmt.Printf("  %-38s %10v %10v %22v\n", name, avg.Round(10*time.Microsecond), quantile(all, 0.99), tail.Round(10*time.Microsecond))
	}
	for _, s := range stages {
		row(s.name, func(w *way) time.Duration { return s.to(w).Sub(s.from(w)) })
	}
	row("all", (*way).took)
}

func mean(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	var sum time.Duration
	for _, d := range list {
		sum += d
	}
	return sum / time.Duration(len(list))
}
