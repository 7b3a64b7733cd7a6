package blocklist

import (
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/trouble"
)

// ErrAuth is returned by the Run of a feed or a publisher whose Redis refuses its user or password
// from the beginning. Once Redis has answered, a refusal is retried like any other trouble:
// passwords are changed.
var ErrAuth = trouble.ErrAuth

// ErrShards is the error when the blocklist in Redis has another number of shards than a feed or a
// publisher was told. A publisher would split it in two, and a feed would miss a part of the
// blocked: both refuse. A publisher that finds that at its start returns it.
var ErrShards = layout.ErrShards

// Trouble is what is the matter with Redis.
type Trouble = trouble.Kind

// The kinds of Trouble.
const (
	TroubleAuth   = trouble.Auth   // it refuses the user, the password, or a command
	TroubleMemory = trouble.Memory // its memory is full, and it refuses to write
	TroubleOther  = trouble.Other  // it answered with another error, such as that it is loading its data
	TroubleTLS    = trouble.TLS    // it answered, and one side refuses the other's certificate or protocol
	TroubleShards = trouble.Shards // what is there has another number of shards
	TroubleAway   = trouble.Away   // it did not answer
)

// Troubles are all kinds of Trouble.
var Troubles = []Trouble{TroubleAuth, TroubleMemory, TroubleTLS, TroubleShards, TroubleOther, TroubleAway}
