package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"time"
)

// recovered is what a restart took.
type recovered struct {
	keys    int
	slowest time.Duration // of a partition: from taking it over until its first event may come
	owned   time.Duration // from the process's start until it owns all partitions
	cpu     time.Duration
}

func (r recovered) String() string {
	return fmt.Sprintf("recovery of %d keys: slowest partition %v, from the program's start until all are owned %v, %v of CPU",
		r.keys, r.slowest.Round(time.Millisecond), r.owned.Round(time.Millisecond), r.cpu.Round(10*time.Millisecond))
}

// line is the recovery as a line of Go's benchmark format.
func (r recovered) line() string {
	return fmt.Sprintf("BenchmarkRecovery %d %.3f CPU-µs/key %.2f CPU-s %.2f s-slowest-partition %.2f s-until-all-owned",
		r.keys, r.cpu.Seconds()*1e6/float64(max(r.keys, 1)), r.cpu.Seconds(), r.slowest.Seconds(), r.owned.Seconds())
}

// recovery starts the program again, on the changelog that the run before has left.
func (b *bench) recovery(prefix string) (recovered, error) {
	metrics := freeAddr()
	cmd := b.command(prefix, metrics, "info")
	logs, err := cmd.StderrPipe()
	if err != nil {
		return recovered{}, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return recovered{}, err
	}
	defer stop(cmd)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	context.AfterFunc(ctx, func() { _ = logs.Close() })
	r, err := b.takeovers(logs)
	if err != nil {
		return r, err
	}
	r.owned = time.Since(began)
	go func() { _, _ = io.Copy(io.Discard, logs) }()
	m, err := scrape(ctx, metrics)
	if err != nil {
		return r, err
	}
	r.cpu = time.Duration(m["process_cpu_seconds_total"] * float64(time.Second))
	return r, nil
}

// takeovers reads the program's log until every partition was taken over.
func (b *bench) takeovers(logs io.Reader) (r recovered, err error) {
	left := b.partitions
	for s := bufio.NewScanner(logs); left > 0 && s.Scan(); {
		var line struct {
			Msg  string  `json:"msg"`
			Keys int     `json:"keys"`
			Took float64 `json:"took_seconds"`
		}
		if json.Unmarshal(s.Bytes(), &line) != nil || line.Msg != "partition taken over" {
			continue
		}
		r.keys += line.Keys
		r.slowest = max(r.slowest, time.Duration(line.Took*float64(time.Second)))
		left--
	}
	if left > 0 {
		return r, errors.New("the program did not take all partitions over")
	}
	return r, nil
}

// pauses renders the histogram of how long checkpoints kept events waiting.
func pauses(m map[string]float64) string {
	const name = "tallygate_checkpoint_pause_seconds_bucket{le=\""
	var bounds []float64
	counts := map[float64]float64{}
	for k, n := range m {
		text, isBucket := strings.CutPrefix(k, name)
		if bound, err := strconv.ParseFloat(strings.TrimSuffix(text, "\"}"), 64); isBucket && err == nil {
			bounds, counts[bound] = append(bounds, bound), n
		}
	}
	sort.Float64s(bounds)
	var out strings.Builder
	below := 0.0
	for _, bound := range bounds {
		if n := counts[bound] - below; n > 0 {
			fmt.Fprintf(&out, "  ≤%gms: %.0f", bound*1000, n)
		}
		below = counts[bound]
	}
	return fmt.Sprintf("pauses by checkpoints:%s; together %.0f ms", out.String(), m["tallygate_checkpoint_pause_seconds_sum"]*1000)
}
