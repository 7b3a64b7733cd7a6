package enforce

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/event"
)

// Bits of mode. 0 is the fast path of checks.
const (
	modeOff   = 1 << iota // checks are allowed
	modeStale             // the policy for a stale table changes answers
)

// runWithin is the time after NewTable for which the table may be used without Run.
const runWithin = 10 * time.Second

// mode decides how checks are answered, by the switches and the table's staleness.
type mode struct {
	bits atomic.Uint32 // modeOff, modeStale

	switches switches
	progress progress
	most     time.Duration // Config.MaxStaleness
	policy   bool          // a policy changes answers of a stale table
	log      *slog.Logger

	started           time.Time   // with the monotonic clock
	ran, loggedNotRun atomic.Bool // Run was called; the log says that it wasn't

	mu         sync.Mutex   // held while the mode is found out
	staleSince atomic.Int64 // since when the table is stale; 0: it isn't. Changed under mu
	staleTime  event.Micros // spent stale before that; under mu
}

func (m *mode) init(cfg *Config, policy bool) {
	m.started, m.most, m.policy, m.log = time.Now(), cfg.MaxStaleness, policy, cfg.Logger
	m.progress.init(cfg.Shards)
	m.switches.init(cfg.OffFile, cfg.Logger)
	m.update()
}

// update finds out the mode.
func (m *mode) update() {
	m.mu.Lock() // so that no older mode is stored over a newer one
	defer m.mu.Unlock()
	bits := uint32(0)
	if m.switches.off() {
		bits |= modeOff
	}
	stale, since := m.notRun() || !m.progress.complete() || m.progress.behind() > m.most, event.Micros(m.staleSince.Load())
	switch {
	case stale && since == 0:
		m.staleSince.Store(int64(now()))
	case !stale && since != 0:
		m.staleTime += max(now()-since, 0)
		m.staleSince.Store(0)
	}
	if stale && m.policy {
		bits |= modeStale
	}
	m.bits.Store(bits)
}

// checkRan makes the table stale when Run was not called in time, and logs that once.
func (m *mode) checkRan() {
	if m.notRun() && m.loggedNotRun.CompareAndSwap(false, true) {
		m.log.Error("the table of verdicts is not run: ended verdicts stay in memory, and it cannot notice that it falls behind. Call Table.Run beside the feed")
		m.update()
	}
}

// notRun reports whether Run was not called in time.
func (m *mode) notRun() bool { return !m.ran.Load() && time.Since(m.started) > runWithin }

// spentStale is Table.StaleTime.
func (m *mode) spentStale() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	spent := m.staleTime
	if since := event.Micros(m.staleSince.Load()); since != 0 {
		spent += max(now()-since, 0)
	}
	return spent.Duration()
}
