package enforce

import (
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// offVariable, set to off, turns enforcement off from the start.
	offVariable = "TALLYGATE_ENFORCE"
	// offFileEvery is the interval at which Run looks for Config.OffFile.
	offFileEvery = time.Second
)

// OffCause is a switch that turns enforcement off.
type OffCause string

// The causes of Table.Off. When there are several, the first of them is named.
const (
	OffEnvironment OffCause = "environment" // TALLYGATE_ENFORCE=off
	OffFile        OffCause = "file"        // Config.OffFile exists
	OffProgram     OffCause = "program"     // SetEnabled(false)
)

// switches turn enforcement off: any of the three does.
type switches struct {
	variable bool // TALLYGATE_ENFORCE=off
	path     string
	file     atomic.Bool // path exists
	call     atomic.Bool // SetEnabled(false)

	log   *slog.Logger
	since time.Time // when the log said that enforcement is off; zero while it is on. Under mode.mu
}

func (s *switches) init(path string, log *slog.Logger) {
	s.path, s.log = path, log
	s.variable = strings.EqualFold(strings.TrimSpace(os.Getenv(offVariable)), "off")
	s.stat()
}

// stat looks for the file.
func (s *switches) stat() {
	if s.path != "" {
		_, err := os.Stat(s.path)
		s.file.Store(err == nil)
	}
}

// off reports whether enforcement is off, and logs when that changes.
func (s *switches) off() bool {
	cause, on := s.cause(), s.since.IsZero()
	switch {
	case cause != "" && on:
		s.since = time.Now()
		s.log.Warn("enforcement is off: every check is allowed", "reason", s.reason(cause))
	case cause == "" && !on:
		s.since = time.Time{}
		s.log.Info("enforcement is on again")
	}
	return cause != ""
}

// cause returns what turns enforcement off; "" is nothing.
func (s *switches) cause() OffCause {
	switch {
	case s.variable:
		return OffEnvironment
	case s.file.Load():
		return OffFile
	case s.call.Load():
		return OffProgram
	}
	return ""
}

// reason is the cause as the log has it.
func (s *switches) reason(cause OffCause) string {
	switch cause {
	case OffEnvironment:
		return offVariable + "=off"
	case OffFile:
		return "the file exists: " + s.path
	}
	return "SetEnabled"
}
