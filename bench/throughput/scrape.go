package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/testing/freeport"
)

// scrape reads a metrics page: values by name with labels.
func scrape(ctx context.Context, addr string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	m := map[string]float64{}
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		name, value, ok := strings.Cut(s.Text(), " ")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			m[name] = v
		}
	}
	return m, nil
}

// freeAddr is where a program may listen.
func freeAddr() string {
	addr, err := freeport.Addr()
	if err != nil {
		return "127.0.0.1:0" // nobody finds it there, and the run ends with an error
	}
	return addr
}

func sum(m map[string]float64, name string) (s float64) {
	for k, v := range m {
		if strings.HasPrefix(k, name+"{") {
			s += v
		}
	}
	return s
}

// result is a process's work.
type result struct {
	events    int
	wall, cpu time.Duration
	note      string
	pauses    string
	resident  float64 // MB
}

func (r result) perCPU() float64 { return float64(r.events) / r.cpu.Seconds() }

func (r result) String() string {
	return fmt.Sprintf("%7.0f/s %7.0f/CPU-s%s", float64(r.events)/r.wall.Seconds(), r.perCPU(), r.note)
}

// line is a result in Go's benchmark format, behind the benchmark's name.
func (r result) line() string {
	return fmt.Sprintf("%d %.3f CPU-µs/event %.0f events/s", r.events, 1e6/r.perCPU(), float64(r.events)/r.wall.Seconds())
}
