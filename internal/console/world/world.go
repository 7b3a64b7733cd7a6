package world

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/apiclient"
	"github.com/tallygate/tallygate/internal/kafkaconn"
)

// Config says what to poll.
type Config struct {
	Kafka  *kafkaconn.Kafka
	Redis  redis.UniversalClient // nil: there is none
	APIs   []*apiclient.Client   // of the aggregators, with the console's own token
	Prefix string                // of topics, group and Redis keys; "" is tallygate
	Shards int                   // of the blocklist; 0 is 1
	Every  time.Duration         // between two rounds; 0 is a second
}

// State is what is known at a moment. It is never changed once published.
type State struct {
	At    time.Time
	Chain Chain
}

// World polls. Make one with New.
type World struct {
	cfg       Config
	state     atomic.Pointer[State]
	preferred atomic.Int32
}

// New makes a World. It asks nothing yet.
func New(cfg Config) *World { return &World{cfg: cfg} }

// State is the latest; nil before the first round.
func (w *World) State() *State { return w.state.Load() }

// Preferred is the index in Config.APIs of the aggregator that answered last.
func (w *World) Preferred() int { return int(w.preferred.Load()) }

// Run polls until ctx ends.
func (w *World) Run(ctx context.Context) error {
	w.state.Store(&State{At: time.Now()})
	<-ctx.Done()
	return nil
}
