package enforce

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
)

// NewTable returns an empty table. It can be used at once. Only Run frees ended verdicts: call it
// within ten seconds, or the table is stale.
func NewTable(cfg Config) (*Table, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	t := &Table{cfg: cfg, born: now(), started: time.Now(), had: make([]atomic.Bool, cfg.Shards), applied: make([]atomic.Int64, cfg.Shards)}
	t.steps.wall = event.FromTime(t.started)
	t.index.Init(cfg.Causes)
	t.policy = newStalePolicy(cfg.OnStale, cfg.Rules, cfg.Instances)
	t.offByVariable = offByVariable()
	t.statOffFile()
	t.updateMode()
	return t, nil
}

// Run keeps the table's clock and frees ended verdicts until ctx ends; it then returns nil. Without
// it, checks read the system's clock, which costs more than the rest of a check, and the table
// becomes stale, as the log says.
func (t *Table) Run(ctx context.Context) error {
	tick := time.NewTicker(t.cfg.Resolution)
	defer tick.Stop()
	sweep := time.NewTicker(t.cfg.Sweep)
	defer sweep.Stop()
	file := time.NewTicker(offFileEvery)
	defer file.Stop()
	t.clock.Store(int64(t.observeClocks()))
	defer t.clock.Store(0)
	t.ran.Store(true)
	t.updateMode()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			t.clock.Store(int64(t.observeClocks()))
			t.updateMode()
		case <-file.C:
			t.statOffFile()
		case <-sweep.C:
			t.sweep(t.observeClocks())
		}
	}
}

// sweep frees verdicts that ended more than the grace ago, by the wall time as far as it is
// believed.
func (t *Table) sweep(at event.Micros) {
	t.index.Sweep(min(at, t.steps.believed()) - event.FromDuration(t.cfg.Grace))
}
