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
	// offFileEvery is how often Run looks for Config.OffFile.
	offFileEvery = time.Second
)

// switches turn enforcement off: any of the three does.
type switches struct {
	variable bool // TALLYGATE_ENFORCE=off
	path     string
	file     atomic.Bool // path exists
	call     atomic.Bool // SetEnabled(false)

	log       *slog.Logger
	loggedOff bool // the log says that enforcement is off; under mode.mu
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
	why := s.reason()
	switch {
	case why != "" && !s.loggedOff:
		s.log.Warn("enforcement is off: every check is allowed", "reason", why)
	case why == "" && s.loggedOff:
		s.log.Info("enforcement is on again")
	}
	s.loggedOff = why != ""
	return s.loggedOff
}

// reason returns what turns enforcement off; "" is nothing.
func (s *switches) reason() string {
	switch {
	case s.variable:
		return offVariable + "=off"
	case s.file.Load():
		return "the file exists: " + s.path
	case s.call.Load():
		return "SetEnabled"
	}
	return ""
}
