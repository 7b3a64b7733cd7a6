package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// startProfile begins to profile the aggregator, if that is wanted.
func (b *bench) startProfile(ctx context.Context) {
	if b.profile == "" {
		return
	}
	go func() {
		if err := b.writeProfile(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "latency: no profile:", err)
		}
	}()
}

func (b *bench) writeProfile(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.metrics+"/debug/pprof/profile?seconds=4", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f, err := os.Create(b.profile)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(f, resp.Body)
	return err
}

// redisStats is what Redis has done so far.
type redisStats struct {
	commands map[string]command
	cpu      time.Duration
}

// command is how often one was run, and for how long.
type command struct{ calls, micros float64 }

func (b *bench) redisStats(ctx context.Context) (st redisStats, err error) {
	client := redis.NewClient(&redis.Options{Addr: b.redis})
	defer client.Close()
	text, err := client.Info(ctx, "commandstats", "cpu").Result()
	if err != nil {
		return st, fmt.Errorf("ask Redis for its statistics: %w", err)
	}
	st.commands = map[string]command{}
	for line := range strings.SplitSeq(text, "\r\n") {
		name, rest, _ := strings.Cut(line, ":")
		var c command
		var s float64
		if _, err := fmt.Sscanf(rest, "calls=%f,usec=%f,", &c.calls, &c.micros); err == nil {
			st.commands[strings.TrimPrefix(name, "cmdstat_")] = c
		} else if _, err := fmt.Sscanf(rest, "%f", &s); err == nil && (name == "used_cpu_user" || name == "used_cpu_sys") {
			st.cpu += time.Duration(s * float64(time.Second))
		}
	}
	return st, nil
}

func (b *bench) reportRedis(ctx context.Context, before redisStats) error {
	after, err := b.redisStats(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("  in Redis itself:")
	for _, name := range []string{"evalsha", "xread"} {
		if calls := after.commands[name].calls - before.commands[name].calls; calls > 0 {
			fmt.Printf("  %s %.0f times, %.0f µs each", name, calls, (after.commands[name].micros-before.commands[name].micros)/calls)
		}
	}
	fmt.Printf("  %v of CPU\n", (after.cpu - before.cpu).Round(time.Millisecond))
	return nil
}
