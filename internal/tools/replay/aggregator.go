package replay

import (
	"context"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/rules"
)

// Aggregator is asked for the rules that its group runs, and for what they have counted.
type Aggregator interface {
	Rules(ctx context.Context) (*rules.Set, error)
	Explain(ctx context.Context, key []event.Dim) ([]rules.Explanation, error)
	Close()
}

// Aggregators adds to a command's options those that say which aggregator to ask, and returns what reads
// them. It sends no request.
type Aggregators func(o *ops.Options) (open func() (Aggregator, error))

// Live is in the place of a rule file the rules that the group runs.
const Live = "live"
