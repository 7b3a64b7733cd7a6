package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// seen is what Redis says of itself.
type seen struct {
	cpu     time.Duration
	in, out float64 // bytes of its network
	clients float64 // bytes of its connections
	reads   float64 // XREAD commands
}

func look(ctx context.Context, client *redis.Client) (s seen, err error) {
	text, err := client.Info(ctx, "cpu", "stats", "memory", "commandstats").Result()
	if err != nil {
		return s, fmt.Errorf("ask Redis for its statistics: %w", err)
	}
	for line := range strings.SplitSeq(text, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if name == "cmdstat_xread" {
			value, _, _ = strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		}
		f, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch name {
		case "used_cpu_user", "used_cpu_sys":
			s.cpu += time.Duration(f * float64(time.Second))
		case "total_net_input_bytes":
			s.in = f
		case "total_net_output_bytes":
			s.out = f
		case "mem_clients_normal":
			s.clients = f
		case "cmdstat_xread":
			s.reads = f
		}
	}
	return s, nil
}
