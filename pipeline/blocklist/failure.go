package blocklist

import (
	"github.com/tallygate/tallygate/pipeline/internal/failure"
)

// ErrAuth is returned by the Run of a publisher whose Redis refuses its user or password from the
// beginning: an aggregator tells at its start. Once Redis has answered, a refusal is retried like any
// other error, because passwords are changed. A feed, which runs in services, always retries.
var ErrAuth = failure.ErrAuth

// ErrShards is the error when the blocklist in Redis has another number of shards than a feed or a
// publisher was told. A publisher would split it in two, and a feed would miss a part of the
// blocked: both refuse. A publisher that finds that at its start returns it.
var ErrShards = failure.ErrShards

// ErrorKind classifies Redis' errors.
type ErrorKind = failure.Kind

// The kinds of ErrorKind.
const (
	ErrorAuth   = failure.Auth   // it refuses the user, the password, or a command
	ErrorMemory = failure.Memory // its memory is full, and it refuses to write
	// It answered with another error, such as that it is loading its data.
	ErrorOther = failure.Other
	// It answered, and one side refuses the other's certificate or protocol.
	ErrorTLS    = failure.TLS
	ErrorShards = failure.Shards // what is there has another number of shards
	ErrorAway   = failure.Away   // it did not answer
	// It is a replica, and takes no writes.
	ErrorReplica = failure.Replica
)

// Outage is the present failure of Redis. The zero value says that nothing is.
type Outage = failure.Outage

// ErrorKinds are all kinds of ErrorKind.
var ErrorKinds = []ErrorKind{ErrorAuth, ErrorMemory, ErrorTLS, ErrorShards, ErrorReplica, ErrorOther, ErrorAway}
