package ask

import (
	"context"

	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
)

// Sample estimates the keys by a share of them.
func Sample(ctx context.Context, v *owner.Rules, rule string, parts []Part, share int) (keys int, sampled bool, err error) {
	of := limitsOf(v.Set, rule)
	w := walker{version: v, of: of, at: now(), counts: []*limitCounts{newLimitCounts(of[0])}}
	for _, p := range parts {
		if err := w.partition(ctx, p, p.Sight().Keys/share); err != nil {
			return 0, false, err
		}
	}
	return w.counts[0].Keys, w.sampled, nil
}
