package fenced

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// fencePrefix begins the keys of fence records. Each producer id has its own key, so that
// compaction never replaces the record of an owner that is still to be fenced by that of another.
// Consumers skip every key that IsOwnerRecord.
const fencePrefix = "\x00fence"

// shutOut is the epoch of a producer id that is never used again.
const shutOut = math.MaxInt16

// FenceRecord describes the owner that appended a fence record.
type FenceRecord struct {
	TransactionalID string    `json:"id"`
	ProducerID      int64     `json:"pid"`
	Epoch           int16     `json:"epoch"`
	At              time.Time `json:"at"` // by the owner's clock; for operators
}

// ShutOut reports whether the record excludes its producer id for good: see FenceOld.
func (f FenceRecord) ShutOut() bool { return f.Epoch == shutOut }

// IsFence reports whether a record with this key is a fence record.
func IsFence(key []byte) bool { return bytes.HasPrefix(key, []byte(fencePrefix)) }

// IsOwnerRecord reports whether a record with this key is the owner's own: a fence record, or
// whatever else it keeps under a key that begins with NUL.
func IsOwnerRecord(key []byte) bool { return len(key) > 0 && key[0] == 0 }

// ParseFence reads the value of a record whose key IsFence.
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

func fenceRecord(txid string, s stamp, at time.Time) (Record, error) {
	v, err := json.Marshal(FenceRecord{TransactionalID: txid, ProducerID: s.pid, Epoch: s.epoch, At: at.UTC()})
	if err != nil {
		return Record{}, fmt.Errorf("encode fence record: %w", err)
	}
	return Record{Key: strconv.AppendInt([]byte(fencePrefix+"/"), s.pid, 10), Value: v}, nil
}
