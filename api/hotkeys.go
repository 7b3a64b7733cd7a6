package api

import (
	"context"
	"strconv"
)

// HotKeys is the answer to GET /v1/hot-keys, over about the last half minute.
type HotKeys struct {
	Partitions []PartitionLoad    `json:"partitions"`        // in order
	Keys       []HotKey           `json:"keys"`              // the busiest first
	Missing    []MissingPartition `json:"missing,omitempty"` // partitions without an answer
}

// PartitionLoad is the load of a partition.
type PartitionLoad struct {
	Partition       int32   `json:"partition"`
	Owner           string  `json:"owner"`
	EventsPerSecond float64 `json:"events_per_second"`
	Share           float64 `json:"share" schema:"maximum=1"` // of all partitions that answered
}

// HotKey is a key that takes much of its partition.
type HotKey struct {
	Key       map[string]string `json:"key"`
	Partition int32             `json:"partition"`
	Heat
}

// Heat is the load of a key.
type Heat struct {
	Share           float64 `json:"share" schema:"maximum=1"` // of its partition's events
	EventsPerSecond float64 `json:"events_per_second"`
}

// MissingPartition is a partition without an answer.
type MissingPartition struct {
	Partition int32  `json:"partition"`
	Reason    string `json:"reason" schema:"minLength=1"`
}

// HotKeys asks for at most so many keys that take much of their partition.
func (a *Client) HotKeys(ctx context.Context, limit int) (*HotKeys, error) {
	return Decode[HotKeys](a.Get(ctx, "/v1/hot-keys?limit="+strconv.Itoa(limit)))
}
