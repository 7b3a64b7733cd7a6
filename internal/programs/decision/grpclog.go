package decision

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"google.golang.org/grpc/grpclog"

	"github.com/tallygate/tallygate/internal/base/logonce"
)

// gRPC's logger is the process's, and may be set only before gRPC does anything.
func init() { grpclog.SetLoggerV2(&grpcLog{}) }

// grpcLog sends gRPC's own messages to the program's log; gRPC would otherwise write text to
// standard error. Clients cause most of its errors, as often as they like, so errors are logged at
// most once a minute. Warnings and information are logged at debug level.
type grpcLog struct{ errors logonce.Line }

func (l *grpcLog) failed(text string) {
	if leftOut, due := l.errors.Due(); due {
		slog.Warn("gRPC reports an error; further ones are not logged for a minute", "error", strings.TrimSpace(text), "left_out", leftOut)
	}
}

// debug formats only what is logged: gRPC tells of each connection.
func (*grpcLog) debug(text func() string) {
	if log := slog.Default(); log.Enabled(context.Background(), slog.LevelDebug) {
		log.Debug("message from gRPC", "detail", strings.TrimSpace(text()))
	}
}

func (l *grpcLog) Info(args ...any)   { l.debug(func() string { return fmt.Sprint(args...) }) }
func (l *grpcLog) Infoln(args ...any) { l.debug(func() string { return fmt.Sprintln(args...) }) }
func (l *grpcLog) Infof(format string, args ...any) {
	l.debug(func() string { return fmt.Sprintf(format, args...) })
}
func (l *grpcLog) Warning(args ...any)                 { l.Info(args...) }
func (l *grpcLog) Warningln(args ...any)               { l.Infoln(args...) }
func (l *grpcLog) Warningf(format string, args ...any) { l.Infof(format, args...) }
func (l *grpcLog) Error(args ...any)                   { l.failed(fmt.Sprint(args...)) }
func (l *grpcLog) Errorln(args ...any)                 { l.failed(fmt.Sprintln(args...)) }
func (l *grpcLog) Errorf(format string, args ...any)   { l.failed(fmt.Sprintf(format, args...)) }
func (l *grpcLog) Fatal(args ...any)                   { l.fatal(fmt.Sprint(args...)) }
func (l *grpcLog) Fatalln(args ...any)                 { l.fatal(fmt.Sprintln(args...)) }
func (l *grpcLog) Fatalf(format string, args ...any)   { l.fatal(fmt.Sprintf(format, args...)) }

// fatal ends the process, as gRPC counts on.
func (*grpcLog) fatal(text string) {
	slog.Error("gRPC aborts the program", "error", strings.TrimSpace(text))
	os.Exit(1)
}

// V refuses lines that only the developers of gRPC need.
func (*grpcLog) V(int) bool { return false }
