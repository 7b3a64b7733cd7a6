package enforce

import (
	"os"
	"strings"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
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

// InDoubt reports whether the table cannot know, and checks are answered as Config.InDoubt and Config.Rules say.
func (t *Table) InDoubt() bool {
	t.lookForRun()
	return t.doubtful.Load() != 0
}

// DoubtTime returns for how long altogether the table has been in doubt since NewTable.
func (t *Table) DoubtTime() time.Duration {
	t.watching.Lock()
	defer t.watching.Unlock()
	spent := t.doubtTime
	if since := event.Micros(t.doubtful.Load()); since != 0 {
		spent += max(now()-since, 0)
	}
	return spent.Duration()
}

// watch finds out what is unusual.
func (t *Table) watch() {
	t.watching.Lock() // so that nobody stores what was so before
	defer t.watching.Unlock()
	mode := uint32(0)
	why := t.whyOff()
	if why != "" {
		mode |= modeOff
	}
	t.tellOff(why)
	doubt, since := t.neglected() || !t.Ready() || t.Staleness() > t.cfg.MaxStaleness, event.Micros(t.doubtful.Load())
	switch {
	case doubt && since == 0:
		t.doubtful.Store(int64(now()))
	case !doubt && since != 0:
		t.doubtTime += max(now()-since, 0)
		t.doubtful.Store(0)
	}
	if doubt && t.doubts.matter() {
		mode |= modeDoubt
	}
	t.mode.Store(mode)
}

// whyOff returns what turns enforcement off; "" is nothing.
func (t *Table) whyOff() string {
	switch {
	case t.offByVariable:
		return offVariable + "=off"
	case t.offByFile.Load():
		return "the file is there: " + t.cfg.OffFile
	case t.off.Load():
		return "SetEnabled"
	}
	return ""
}

// tellOff tells the log that enforcement was turned off, or on again. The lock watching is held.
func (t *Table) tellOff(why string) {
	switch {
	case why != "" && !t.toldOff:
		t.cfg.Logger.Warn("enforcement is off: every check is allowed", "reason", why)
	case why == "" && t.toldOff:
		t.cfg.Logger.Info("enforcement is on again")
	}
	t.toldOff = why != ""
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
