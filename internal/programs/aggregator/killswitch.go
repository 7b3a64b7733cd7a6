package aggregator

import (
	"context"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

const (
	// switchesEvery is the interval between looks at the enforcers' kill switches.
	switchesEvery = 3 * time.Second
	// switchesWithin bounds one look.
	switchesWithin = 2 * time.Second
	// maxSwitchText bounds what an enforcer says about itself, in bytes.
	maxSwitchText = 256
)

// watchSwitches writes into the audit when an enforcer's kill switch is turned, until ctx ends. The instance that
// owns partition 0 does, so that it is one. A new owner tells again which are off.
func (a *Program) watchSwitches(ctx context.Context, agg *aggregate.Aggregator) {
	w := switches{tell: agg.AuditKillSwitch}
	said := false
	for retry.Sleep(ctx, switchesEvery) {
		if !agg.Owns(0) {
			w.known = nil
			continue
		}
		look, cancel := context.WithTimeout(ctx, switchesWithin)
		beats, err := presence.List(look, a.Redis, a.Config.Prefix)
		cancel()
		if err == nil {
			w.take(beats)
		} else if !said && ctx.Err() == nil && a.redisTrouble() == nil {
			said = true // once: the publisher tells of outages
			a.Log.Warn("cannot see the enforcers in Redis; the audit does not tell of their kill switches", "error", err,
				"advice", "give this program's user in Redis HGETALL and TIME on the key of enforcers: tallygate doctor --acls")
		}
	}
}

// switches knows which enforcers are switched off.
type switches struct {
	tell  func(aggregate.KillSwitch)
	known map[string]bool // by their ids: it is enabled
}

// take tells of the enforcers that are switched off or on since the last time; at first, of those that are off.
func (s *switches) take(beats []presence.Beat) {
	known := make(map[string]bool, len(beats))
	for _, b := range beats {
		known[b.ID] = b.Enabled
		was, met := s.known[b.ID]
		if met && was == b.Enabled || !met && b.Enabled {
			continue
		}
		k := aggregate.KillSwitch{Enforcer: short(b.Name), ID: short(b.ID), Enabled: b.Enabled, Since: b.At}
		if !b.Enabled {
			k.Cause, k.Since = short(b.OffCause), b.OffSince
		}
		s.tell(k)
	}
	s.known = known
}

func short(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxSwitchText)], "")
}
