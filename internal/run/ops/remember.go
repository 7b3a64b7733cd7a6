package ops

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/tallygate/tallygate/api"
)

// maxRemembered bounds the different warnings and errors that a log remembers, for GET /v1/status.
const maxRemembered = 50

// memory keeps a log's latest warnings and errors, also those that --log-level leaves out. Of a line it keeps the
// message and why, and no other attribute.
type memory struct {
	mu    sync.Mutex
	lines map[remembered]*api.LoggedError
}

type remembered struct {
	level   slog.Level
	message string
}

// note takes in a line of the log's schema.
func (m *memory) note(r *slog.Record) {
	about := remembered{slog.LevelWarn, r.Message}
	if r.Level >= slog.LevelError {
		about.level = slog.LevelError
	}
	why := map[string]string{}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" || a.Key == "reason" || a.Key == "advice" {
			why[a.Key] = a.Value.String()
		}
		return true
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	line := m.lines[about]
	if line == nil {
		m.forgetOne()
		line = &api.LoggedError{Level: map[slog.Level]string{slog.LevelWarn: "warn", slog.LevelError: "error"}[about.level], Message: r.Message, First: r.Time}
		m.lines[about] = line
	}
	line.Error = cmp.Or(why["error"], why["reason"], why["advice"])
	line.Count++
	if r.Time.After(line.Last) {
		line.Last = r.Time
	}
}

// forgetOne makes room for another line.
func (m *memory) forgetOne() {
	if len(m.lines) < maxRemembered {
		return
	}
	var oldest remembered
	for about, line := range m.lines {
		if was, ok := m.lines[oldest]; !ok || line.Last.Before(was.Last) {
			oldest = about
		}
	}
	delete(m.lines, oldest)
}

// Remembered returns the latest warnings and errors of a log that NewLogger made, the latest first. Lines of
// one message are one entry. Of another log it returns none.
func Remembered(log *slog.Logger) []api.LoggedError {
	all := []api.LoggedError{}
	if log == nil {
		return all
	}
	s, ok := log.Handler().(*schema)
	if !ok {
		return all
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	for _, line := range s.memory.lines {
		all = append(all, *line)
	}
	slices.SortFunc(all, func(a, b api.LoggedError) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Message, b.Message), cmp.Compare(a.Level, b.Level))
	})
	return all
}

// remembers reports whether lines of a level are remembered.
func remembers(level slog.Level) bool { return level >= slog.LevelWarn }

// writeOr remembers a line, and writes it if the log's level has it.
func (s *schema) writeOr(ctx context.Context, r *slog.Record) error {
	if remembers(r.Level) {
		s.memory.note(r)
	}
	if !s.out.Enabled(ctx, r.Level) {
		return nil
	}
	return s.out.Handle(ctx, *r)
}
