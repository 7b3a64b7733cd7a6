package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tallygate/tallygate/internal/base/terminal"
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

// Exit reports an error, and returns the exit status for it.
func Exit(stderr io.Writer, command string, err error) int {
	if err == nil || errors.Is(err, ErrHelp) {
		return ExitOK
	}
	safe := terminal.New(stderr) // servers have a hand in errors
	fmt.Fprintf(safe, "%s: %v\n", command, err)
	_ = safe.Close()
	return exitStatus(err)
}

// IgnoreCanceled returns err, or nil if ctx has ended: the error of a task that was told to stop is
// expected.
func IgnoreCanceled(ctx context.Context, err error) error {
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

// NewRegistry returns a registry with the process's own metrics, tallygate_build_info and
// tallygate_clock_timestamp_seconds.
func NewRegistry(component string) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tallygate_build_info", Help: "Build information of the running program; always 1.",
		ConstLabels: prometheus.Labels{"component": component, "version": Version(), "commit": Commit(), "go": goVersion()},
	})
	info.Set(1)
	reg.MustRegister(info, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tallygate_clock_timestamp_seconds", Help: "What the clock of this machine says: Prometheus compares it with its own.",
	}, func() float64 { return float64(time.Now().UnixMilli()) / 1000 }))
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

// Commit is the commit that the program was built from; "unknown" if the build does not know it.
func Commit() string {
	commit := "unknown"
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, s := range b.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value
			case s.Key == "vcs.modified" && s.Value == "true": // it comes behind the revision
				commit += "-modified"
			}
		}
	}
	return commit
}

// WriteVersion writes what a program is, and tells whether that is what the arguments ask for.
func WriteVersion(args []string, program string, out io.Writer) bool {
	if len(args) != 1 || args[0] != "--version" && args[0] != "-version" {
		return false
	}
	fmt.Fprintf(out, "%s %s, commit %s, %s\n", program, Version(), Commit(), goVersion())
	return true
}

func goVersion() string {
	if b, ok := debug.ReadBuildInfo(); ok {
		return b.GoVersion
	}
	return "unknown"
}
