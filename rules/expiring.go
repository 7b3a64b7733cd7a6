package rules

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
)

// expiring is a warning that holds from a time on.
type expiring struct {
	from    event.Micros
	warning Warning
}

// maxExpired bounds how many expired exemptions and overrides are told.
const maxExpired = 20

// WarningsAt are the Warnings, and behind them those of what is over at a time: exemptions and overrides that
// no key has any more.
func (s *Set) WarningsAt(now event.Micros) []Warning {
	out, more := slices.Clone(s.Warnings), 0
	for i := range s.expiring {
		switch e := &s.expiring[i]; {
		case e.from > now:
		case len(out)-len(s.Warnings) == maxExpired:
			more++
		default:
			out = append(out, e.warning)
		}
	}
	if more > 0 {
		out[len(out)-1].Message += fmt.Sprintf(", and %d more are", more)
	}
	return out
}

// expires notes that something that a file grants is over from a time on.
func expires(c *compiler, n *yaml.Node, what string, at event.Micros) {
	if at == event.NoTime {
		return
	}
	const hint = "remove it, or give it a later time"
	c.set.expiring = append(c.set.expiring, expiring{at, Warning(*c.At(n, hint, what+" is over since "+at.String()))})
}
