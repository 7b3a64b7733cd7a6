package enforce

import "time"

// reports is what operators are told of a table, beside how stale it is.
type reports struct{ table *Table }

// Off returns what turns enforcement off, and since when; "" and the zero time while it is on.
func (r *reports) Off() (cause OffCause, since time.Time) {
	m := &r.table.mode
	m.mu.Lock()
	defer m.mu.Unlock()
	if since = m.switches.since; since.IsZero() {
		return "", since
	}
	return m.switches.cause(), since
}
