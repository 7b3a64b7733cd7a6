package health

import (
	"fmt"

	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

func skewed(b *presence.Beat) (Level, string) {
	skew, how := b.Skew(), "fast"
	if skew < 0 {
		how = "slow"
	}
	return when(skew.Abs() >= Clock.Warn, Warn), "its clock is " + span(skew.Abs()) + " " + how
}

func versions(o *Observations) []Fault {
	by := map[string][]string{}
	for i := range o.Enforcers.Value {
		if b := &o.Enforcers.Value[i]; !b.Gone() {
			by[b.Version] = append(by[b.Version], b.Name)
		}
	}
	if len(by) < 2 {
		return nil
	}
	return []Fault{{Level: Warn, Text: fmt.Sprintf("the enforcers have %d versions: %s", len(by), list(by))}}
}
