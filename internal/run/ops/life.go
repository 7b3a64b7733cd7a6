package ops

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"time"
)

// Live runs a program whose options are valid, and returns its exit status. It logs the start with
// its settings, the request to stop, and the end. An error is logged too, because programs with a
// log have no terminal. Libraries without a logger of their own write to the same log.
func Live(ctx context.Context, log *slog.Logger, program string, about []any, run func(context.Context) error) int {
	slog.SetDefault(log)
	log.Info("starting", append([]any{"program", program, "program_version", Version()}, about...)...)
	began := time.Now()
	told := make(chan time.Time, 1)
	unwatch := context.AfterFunc(ctx, func() {
		now := time.Now()
		log.Info("stopping", "reason", context.Cause(ctx).Error())
		told <- now // behind the line: the last one is the end
	})
	err := run(ctx)
	stopping := time.Time{}
	if !unwatch() {
		stopping = <-told
	}
	switch {
	case err != nil:
		status := exitStatus(err)
		log.Error("the program failed", "error", err, "status", status, "ran_seconds", time.Since(began).Seconds())
		return status
	case stopping.IsZero():
		log.Info("stopped", "ran_seconds", time.Since(began).Seconds())
	default:
		log.Info("stopped", "took_seconds", time.Since(stopping).Seconds(), "ran_seconds", time.Since(began).Seconds())
	}
	return ExitOK
}

func exitStatus(err error) int {
	if _, ok := errors.AsType[*UsageError](err); ok {
		return ExitUsage
	}
	return ExitError
}

// Listening returns a program's listeners for its log, without those that are nil.
func Listening(all map[string]net.Listener) (attrs []any) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if l := all[name]; l != nil {
			attrs = append(attrs, name, l.Addr().String())
		}
	}
	return attrs
}

const (
	readyEvery    = 200 * time.Millisecond // between two looks
	notReadyAgain = time.Minute            // between two lines while a program is not ready
)

// LogReady says in the log when a program becomes ready, and when it no longer is, with the reason;
// while it is not, again each minute. about is where it serves, for the line that says that it does. It
// returns when ctx ends.
func LogReady(ctx context.Context, log *slog.Logger, ready func() error, about ...any) {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	began := time.Now()
	since, said, was := began, began, false // since when it is what it was, and the last line
	for {
		err := ready()
		switch now := time.Now(); {
		case ctx.Err() != nil:
			return
		case err == nil && !was:
			log.Info("ready", append([]any{"took_seconds", now.Sub(since).Seconds()}, about...)...)
			since, said, was = now, now, true
		case err != nil && was:
			log.Info("not ready", "reason", err.Error())
			since, said, was = now, now, false
		case err != nil && now.Sub(said) >= notReadyAgain:
			log.Warn("still not ready", "reason", err.Error(), "waited_seconds", now.Sub(since).Seconds())
			said = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
