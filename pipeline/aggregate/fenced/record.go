package fenced

import (
	"encoding/json"
	"fmt"
	"time"
)

// The keys of the owners' own records. Consumers skip every key that IsOwnerRecord.
const (
	FenceKey    = "\x00fence"
	oldFenceKey = "\x00fence-old" // its own key: compaction must not let it replace the owner's
)

// FenceRecord is what a fence record says about the owner that appended it.
type FenceRecord struct {
	TransactionalID string    `json:"id"`
	ProducerID      int64     `json:"pid"`
	Epoch           int16     `json:"epoch"`
	At              time.Time `json:"at"` // by the owner's clock; for people to read
}

// IsOwnerRecord reports whether a record of this key is an owner's own: a fence, or whatever
// else its owner keeps there under a key that begins with NUL.
func IsOwnerRecord(key []byte) bool { return len(key) > 0 && key[0] == 0 }

// ParseFence reads the value of a record whose key is FenceKey.
func ParseFence(value []byte) (FenceRecord, error) {
	f := FenceRecord{ProducerID: -1, Epoch: -1}
	if err := json.Unmarshal(value, &f); err != nil {
		return FenceRecord{}, fmt.Errorf("parse fence record: %w", err)
	}
	if f.ProducerID < 0 || f.Epoch < 0 {
		return FenceRecord{}, fmt.Errorf("parse fence record: no producer id and epoch in %.100q", value)
	}
	return f, nil
}

func fenceRecord(key, txid string, s stamp, at time.Time) (Record, error) {
	v, err := json.Marshal(FenceRecord{TransactionalID: txid, ProducerID: s.pid, Epoch: s.epoch, At: at.UTC()})
	if err != nil {
		return Record{}, fmt.Errorf("encode fence record: %w", err)
	}
	return Record{Key: []byte(key), Value: v}, nil
}
