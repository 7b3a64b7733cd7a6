package dev

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/tallygate/tallygate/internal/accesslog"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/testdata"
)

// traffic replays the input as live events: its own times give the pace, the broker's are
// what is counted by.
func (s *stack) traffic(ctx context.Context, to *screen) error {
	mechanism, err := s.kafka.Mechanism()
	if err != nil {
		return err
	}
	em, err := emit.New(emit.Config{Brokers: s.kafka.Brokers, Prefix: s.prefix, TLS: s.kafka.TLS, SASL: mechanism})
	if err != nil {
		return err
	}
	defer func() {
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = em.Close(cctx) // the traffic is a sample
	}()
	events, err := s.readInput(to)
	if err != nil {
		return err
	}
	if len(events) == 0 {
		return fmt.Errorf("%s: no event in it", s.input)
	}
	for round := 1; ; round++ {
		if err := s.replay(ctx, em, events, round); err != nil {
			return err
		}
		if s.once || s.input == "-" {
			to.say("; the input is through")
			<-ctx.Done()
			return ctx.Err()
		}
	}
}

// readInput reads the whole input, sorted by time: logs are often not.
func (s *stack) readInput(to *screen) ([]event.Event, error) {
	in, err := s.open()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var events []event.Event
	r := accesslog.NewReader(in, accesslog.Auto)
	for {
		e, _, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if _, ok := errors.AsType[*accesslog.LineError](err); ok {
			to.say(fmt.Sprintf("; %d lines of the input are no events, the last: %v", r.Skipped(), err))
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", s.input, err)
		}
		events = append(events, e.Clone())
	}
	slices.SortStableFunc(events, func(a, b event.Event) int { return cmp.Compare(a.Time, b.Time) })
	return events, nil
}

func (s *stack) open() (io.ReadCloser, error) {
	switch s.input {
	case "":
		return gunzip(io.NopCloser(bytes.NewReader(testdata.AccessLog)))
	case "-":
		return gunzip(io.NopCloser(os.Stdin))
	}
	f, err := os.Open(s.input)
	if err != nil {
		return nil, fmt.Errorf("read the input: %w", err)
	}
	return gunzip(f)
}

// gunzip unpacks what is gzipped, and leaves the rest as it is.
func gunzip(in io.ReadCloser) (io.ReadCloser, error) {
	b := bufio.NewReader(in)
	if magic, _ := b.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return struct {
			io.Reader
			io.Closer
		}{b, in}, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, fmt.Errorf("unpack the input: %w", err)
	}
	return struct {
		io.Reader
		io.Closer
	}{z, in}, nil
}

func (s *stack) replay(ctx context.Context, em *emit.Emitter, events []event.Event, round int) error {
	began, first := time.Now(), startOf(events)
	for _, e := range events {
		if s.speed > 0 && e.Time != event.NoTime {
			due := began.Add(time.Duration(float64((e.Time - first).Duration()) / s.speed))
			if !sleepUntil(ctx, due) {
				return ctx.Err()
			}
		}
		e.Time, e.BrokerTime = event.NoTime, event.NoTime
		if round > 1 && e.ID != "" {
			e.ID = fmt.Sprintf("%d-%s", round, e.ID)
		}
		if err := em.EmitWait(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func startOf(events []event.Event) event.Micros {
	for _, e := range events {
		if e.Time != event.NoTime {
			return e.Time
		}
	}
	return 0
}

func sleepUntil(ctx context.Context, t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
