package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Exit statuses of all commands.
const (
	ExitOK    = 0
	ExitError = 1
	ExitUsage = 2 // wrong flags, config or rules
)

// UsageError is an error of the user's: it ends a command with ExitUsage.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *UsageError) Unwrap() error { return e.Err }

// Exit says what went wrong, and returns the exit status for it.
func Exit(stderr io.Writer, command string, err error) int {
	if err == nil || errors.Is(err, ErrHelp) {
		return ExitOK
	}
	fmt.Fprintf(stderr, "%s: %v\n", command, err)
	if _, ok := errors.AsType[*UsageError](err); ok {
		return ExitUsage
	}
	return ExitError
}

// UnlessEnded leaves out the error of what was told to stop.
func UnlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Stoppable returns a context that ends at the first SIGINT or SIGTERM; one that comes more
// than a second later ends the process at once. Up to then it may be the same one: timeout(1)
// sends it to the process and to its group.
func Stoppable(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	return ctx, stop
}

// LogOptions are the options of the log.
type LogOptions struct{ level, format string }

// Log adds the log's options.
func (o *Options) Log() *LogOptions {
	l := &LogOptions{}
	o.StringVar(&l.level, "log-level", "info", "`level`: debug, info, warn or error")
	o.StringVar(&l.format, "log-format", "json", "`format`: json or text")
	return l
}

// Build makes the logger.
func (l *LogOptions) Build(out io.Writer) (*slog.Logger, error) {
	return NewLogger(out, l.level, l.format)
}

// NewLogger makes a logger from what --log-level and --log-format say.
func NewLogger(out io.Writer, level, format string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: least}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(out, opts)), nil
	case "text":
		return slog.New(slog.NewTextHandler(out, opts)), nil
	}
	return nil, fmt.Errorf("--log-format %q: json or text", format)
}

// NewRegistry returns a registry with the process's own metrics and tallygate_build_info.
func NewRegistry(component string) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tallygate_build_info", Help: "What is running; always 1.",
		ConstLabels: prometheus.Labels{"component": component, "version": Version(), "go": goVersion()},
	})
	info.Set(1)
	reg.MustRegister(info)
	return reg
}

// Version is the module's version, or the commit it was built from.
func Version() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if b.Main.Version != "" && b.Main.Version != "(devel)" {
		return b.Main.Version
	}
	for _, s := range b.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "devel"
}

func goVersion() string {
	if b, ok := debug.ReadBuildInfo(); ok {
		return b.GoVersion
	}
	return "unknown"
}
