package shard

import (
	"errors"
)

// ErrFinal is wrapped by errors that another takeover of the partition does not resolve.
var ErrFinal = errors.New("shard: retrying does not help")

// ErrNewerFormat says that a record is of a format that this program does not know.
var ErrNewerFormat = errors.New("shard: written by a newer program")
