package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed hot.yaml
var hotYAML []byte

// hotAddress is what hot events have in common.
const hotAddress = "203.0.113.7"

// hotWarm is how long instances count before the measurement begins: events go in packs a few seconds after
// the start.
const hotWarm = 6 * time.Second

// hotRuns compares several instances that pack what they forward with some that forward whole events, in turn.
func (b *bench) hotRuns(runs int) error {
	fmt.Printf("%d events, ids %t, %.0f %% of them from one address, %d partitions, %d instances, a limit of uids and one of addresses\n",
		b.events, b.ids, 100*b.hot, b.partitions, b.instances)
	for run := range runs {
		for _, whole := range []bool{true, false} {
			name, prefix := "packs", fmt.Sprintf("bench-%d-%d", time.Now().UnixMilli(), run)
			if whole {
				name = "whole"
			}
			if err := b.produce(prefix, uint64(run)); err != nil {
				return fmt.Errorf("produce: %w", err)
			}
			r, err := b.hotRun(prefix, whole)
			if err != nil {
				return fmt.Errorf("events forwarded as %s: %w", name, err)
			}
			sizes, err := b.sizes(prefix)
			if err != nil {
				return err
			}
			fmt.Printf("run %d  forwarded as %s  %s\n      in Kafka:%s\n", run+1, name, r, sizes)
			if b.lines {
				fmt.Printf("BenchmarkHotKey/forwarded=%s %s\n", name, r.line())
			}
		}
	}
	return nil
}

// hotRun measures the instances from some seconds after their start on.
func (b *bench) hotRun(prefix string, whole bool) (r result, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var addrs []string
	for range b.instances {
		addrs = append(addrs, freeAddr())
		cmd := b.command(prefix, addrs[len(addrs)-1], "warn", "--forward-whole="+fmt.Sprint(whole))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return r, err
		}
		defer stop(cmd)
	}
	var from hotSample
	var owned time.Time
	for ; ; time.Sleep(50 * time.Millisecond) { // a scrape takes CPU, too
		s := sampleAll(ctx, addrs)
		switch {
		case ctx.Err() != nil:
			return r, errors.New("not all events were counted in 10 minutes")
		case s.owned < b.partitions:
			owned = time.Time{}
		case owned.IsZero():
			owned = time.Now()
		case from.at.IsZero() && time.Since(owned) > hotWarm:
			from = s
		}
		if want := float64(b.events + b.hotEvents()); s.counted < want {
			continue
		} else if from.at.IsZero() {
			return r, fmt.Errorf("all was counted within %v: give it more --events", hotWarm)
		} else if s.counted > want {
			return r, fmt.Errorf("%.0f were counted, and there are %.0f", s.counted, want)
		}
		return result{
			events: int((s.counted - from.counted) * float64(b.events) / float64(b.events+b.hotEvents())),
			wall:   s.at.Sub(from.at), cpu: time.Duration((s.cpu - from.cpu) * float64(time.Second)),
			note: fmt.Sprintf(" (%.0f MB resident)", s.resident/1e6), resident: s.resident / 1e6,
		}, nil
	}
}

// hotEvents is how many events have the address.
func (b *bench) hotEvents() int { return int(float64(b.events) * b.hot) }

// isHot reports whether the i-th event has it: they are spread evenly.
func (b *bench) isHot(i int) bool {
	return int(float64(i+1)*b.hot) > int(float64(i)*b.hot)
}

// hotSample is what all instances say together.
type hotSample struct {
	at                     time.Time
	owned                  int
	counted, cpu, resident float64
}

func sampleAll(ctx context.Context, addrs []string) (s hotSample) {
	s.at = time.Now()
	for _, addr := range addrs {
		m, err := scrape(ctx, addr)
		if err != nil {
			continue // not listening yet
		}
		for name := range m {
			if strings.HasPrefix(name, "tallygate_state_keys{") {
				s.owned++
			}
		}
		s.counted += m[`tallygate_events_total{result="counted"}`]
		s.cpu += m["process_cpu_seconds_total"]
		s.resident += m["process_resident_memory_bytes"]
	}
	return s
}

// rulesFile is where the run's rules are.
func (b *bench) rulesFile() string { return filepath.Join(b.dir, "rules.yaml") }

func (b *bench) command(prefix, metrics, logLevel string, more ...string) *exec.Cmd {
	return exec.Command(filepath.Join(b.dir, "aggregator"), append([]string{"--kafka", strings.Join(b.brokers, ","), "--prefix", prefix,
		"--rules", b.rulesFile(), "--listen", freeAddr(), "--metrics-listen", metrics,
		"--checkpoint-every", b.checkpoint.String(), "--log-level", logLevel}, more...)...)
}
