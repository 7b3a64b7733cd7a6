package enforce

import (
	"os"
	"strings"
	"time"
)

// offVariable, set to off, turns enforcement off from the start.
const offVariable = "TALLYGATE_ENFORCE"

// What is unusual, as bits of Table.mode: 0 is what checks are quick for.
const (
	modeOff = 1 << iota
	modeDoubt
)

// SetEnabled turns enforcement off, or on again: while it is off, every check is allowed, and the table stays in step. There are three
// such switches, and it is on when none says off: this one, the environment variable TALLYGATE_ENFORCE=off, which is read by
// NewTable, and Config.OffFile.
func (t *Table) SetEnabled(on bool) {
	t.off.Store(!on)
	t.watch()
}

// Enabled reports whether verdicts are enforced, that is, whether none of the switches says off.
func (t *Table) Enabled() bool { return t.mode.Load()&modeOff == 0 }

// InDoubt reports whether checks are answered as Config.InDoubt and Config.Rules say.
func (t *Table) InDoubt() bool { return t.mode.Load()&modeDoubt != 0 }

// watch finds out what is unusual.
func (t *Table) watch() {
	t.watching.Lock() // so that nobody stores what was so before
	defer t.watching.Unlock()
	mode := uint32(0)
	if t.off.Load() || t.offByVariable || t.offByFile.Load() {
		mode |= modeOff
	}
	if t.doubts.matter() && (!t.Ready() || t.Staleness() > t.cfg.MaxStaleness) {
		mode |= modeDoubt
	}
	t.mode.Store(mode)
}

// lookForFile looks whether Config.OffFile is there.
func (t *Table) lookForFile() {
	if t.cfg.OffFile != "" {
		_, err := os.Stat(t.cfg.OffFile)
		t.offByFile.Store(err == nil)
	}
}

const fileEvery = time.Second

func offByVariable() bool { return strings.EqualFold(strings.TrimSpace(os.Getenv(offVariable)), "off") }
