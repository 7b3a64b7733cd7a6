package enforce

import (
	"context"
	"time"
)

// Run keeps the table's clock and frees ended verdicts until ctx ends; it then returns nil. Without
// it, checks read the system's clock, which costs more than the rest of a check, and the table
// becomes stale, as the log says.
func (t *Table) Run(ctx context.Context) error {
	if t.cfg.Now != nil {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(t.cfg.Resolution)
	defer tick.Stop()
	sweep := time.NewTicker(t.cfg.Sweep)
	defer sweep.Stop()
	file := time.NewTicker(offFileEvery)
	defer file.Stop()
	t.clock.coarse.Store(int64(t.steps.look()))
	defer t.clock.coarse.Store(0)
	t.mode.ran.Store(true)
	t.mode.update()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			t.clock.coarse.Store(int64(t.steps.look()))
			t.mode.update()
		case <-file.C:
			t.mode.switches.stat()
		case <-sweep.C:
			now := t.steps.look()
			t.index.Sweep(t.steps.over(now, t.cfg.Grace))
			t.left.Sweep(t.steps.over(now, 0))
		}
	}
}
