package aggregate

import (
	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
)

// loopWriter is the writer to a partition of the repartition topic. The partition is locked.
func (p *partition) loopWriter(target int32) *fenced.Writer {
	w := p.loops[target]
	if w == nil {
		w = p.identity.NewWriter(p.agg.names.Loop, target)
		p.loops[target] = w
		p.wg.Go(func() { p.die(p.ended(p.runLoop(w, target))) })
	}
	return w
}

// runLoop fences a loop partition before the first forward there, then lets the writer write.
func (p *partition) runLoop(w *fenced.Writer, target int32) error {
	for _, pid := range p.expired {
		if _, err := fenced.FenceOld(p.ctx, p.fencedConfig(), p.agg.names.Loop, target, pid); err != nil {
			return err
		}
	}
	if _, err := w.Fence(p.ctx); err != nil {
		return err
	}
	return w.Run(p.ctx)
}
