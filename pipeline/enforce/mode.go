package enforce

import (
	"os"
	"strings"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
)

// Bits of Table.mode. 0 is the fast path of checks.
const (
	modeOff   = 1 << iota // checks are allowed
	modeStale             // the policy for a stale table changes answers
)

const (
	// offVariable, set to off, turns enforcement off from the start.
	offVariable = "TALLYGATE_ENFORCE"
	// offFileEvery is how often Run looks for Config.OffFile.
	offFileEvery = time.Second
	// runWithin is how long after NewTable the table may be used without Run.
	runWithin = 10 * time.Second
)

// SetEnabled turns enforcement off or on. While it is off every check is allowed, and the table
// stays in step. Enforcement is on when none of three switches is off: this one, the environment
// variable TALLYGATE_ENFORCE=off, which NewTable reads, and Config.OffFile.
func (t *Table) SetEnabled(on bool) {
	t.off.Store(!on)
	t.updateMode()
}

// Enabled reports whether verdicts are enforced: none of the switches is off.
func (t *Table) Enabled() bool { return t.mode.Load()&modeOff == 0 }

// Stale reports whether the table is stale. Config.OnStale and Config.Rules say how checks are
// answered meanwhile.
func (t *Table) Stale() bool {
	t.checkRan()
	return t.staleSince.Load() != 0
}

// StaleTime returns for how long altogether the table has been stale since NewTable.
func (t *Table) StaleTime() time.Duration {
	t.modeMu.Lock()
	defer t.modeMu.Unlock()
	spent := t.staleTime
	if since := event.Micros(t.staleSince.Load()); since != 0 {
		spent += max(now()-since, 0)
	}
	return spent.Duration()
}

// updateMode finds out the table's mode.
func (t *Table) updateMode() {
	t.modeMu.Lock() // so that no older mode is stored over a newer one
	defer t.modeMu.Unlock()
	mode := uint32(0)
	why := t.whyOff()
	if why != "" {
		mode |= modeOff
	}
	t.logOff(why)
	stale, since := t.notRun() || !t.Ready() || t.Staleness() > t.cfg.MaxStaleness, event.Micros(t.staleSince.Load())
	switch {
	case stale && since == 0:
		t.staleSince.Store(int64(now()))
	case !stale && since != 0:
		t.staleTime += max(now()-since, 0)
		t.staleSince.Store(0)
	}
	if stale && t.policy.matters() {
		mode |= modeStale
	}
	t.mode.Store(mode)
}

// whyOff returns what turns enforcement off; "" is nothing.
func (t *Table) whyOff() string {
	switch {
	case t.offByVariable:
		return offVariable + "=off"
	case t.offByFile.Load():
		return "the file exists: " + t.cfg.OffFile
	case t.off.Load():
		return "SetEnabled"
	}
	return ""
}

// logOff logs when enforcement is turned off or on. modeMu is held.
func (t *Table) logOff(why string) {
	switch {
	case why != "" && !t.loggedOff:
		t.cfg.Logger.Warn("enforcement is off: every check is allowed", "reason", why)
	case why == "" && t.loggedOff:
		t.cfg.Logger.Info("enforcement is on again")
	}
	t.loggedOff = why != ""
}

// statOffFile looks for Config.OffFile.
func (t *Table) statOffFile() {
	if t.cfg.OffFile != "" {
		_, err := os.Stat(t.cfg.OffFile)
		t.offByFile.Store(err == nil)
	}
}

func offByVariable() bool { return strings.EqualFold(strings.TrimSpace(os.Getenv(offVariable)), "off") }

// checkRan makes the table stale when Run was not called in time, and logs that once.
func (t *Table) checkRan() {
	if t.notRun() && t.loggedNotRun.CompareAndSwap(false, true) {
		t.cfg.Logger.Error("the table of verdicts is not run: ended verdicts stay in memory, and it cannot notice that it falls behind. Call Table.Run beside the feed")
		t.updateMode()
	}
}

// notRun reports whether Run was not called in time.
func (t *Table) notRun() bool { return !t.ran.Load() && time.Since(t.started) > runWithin }
