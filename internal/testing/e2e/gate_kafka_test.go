package e2e

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafkaRequest is a request, as far as moments need it.
type kafkaRequest struct {
	api         int16
	version     int16
	correlation int32
	body        []byte
}

// readFrame reads a request or an answer with its length before it.
func readFrame(from io.Reader, buf *[]byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > 128<<20 {
		return nil, errFrame
	}
	*buf = slices.Grow((*buf)[:0], 4+int(size))[:4+size]
	copy(*buf, head[:])
	_, err := io.ReadFull(from, (*buf)[4:])
	return *buf, err
}

func correlationOf(answer []byte) (int32, error) {
	if len(answer) < 8 {
		return 0, errFrame
	}
	return int32(binary.BigEndian.Uint32(answer[4:])), nil
}

func parseRequest(frame []byte) (*kafkaRequest, error) {
	if len(frame) < 14 {
		return nil, errFrame
	}
	q := &kafkaRequest{
		api:         int16(binary.BigEndian.Uint16(frame[4:])),
		version:     int16(binary.BigEndian.Uint16(frame[6:])),
		correlation: int32(binary.BigEndian.Uint32(frame[8:])),
	}
	// The client id's length; -1 for none.
	client := max(int(int16(binary.BigEndian.Uint16(frame[12:]))), 0)
	if len(frame) < 14+client {
		return nil, errFrame
	}
	q.body = frame[14+client:]
	return q, nil
}

// keysTo returns the keys of all records that a request appends to a topic.
func (q *kafkaRequest) keysTo(topic string) [][]byte {
	p := kmsg.ProduceRequest{Version: q.version}
	if q.api != int16(kmsg.Produce) || q.version >= 9 || !bytes.Contains(q.body, []byte(topic)) || p.ReadFrom(q.body) != nil {
		return nil
	}
	var keys [][]byte
	for _, t := range p.Topics {
		for _, part := range t.Partitions {
			if t.Topic == topic {
				keys = append(keys, keysOf(part.Records)...)
			}
		}
	}
	return keys
}

var decompressor = kgo.DefaultDecompressor()

// keysOf returns the keys of a batch.
func keysOf(batch []byte) (keys [][]byte) {
	var b kmsg.RecordBatch
	if b.ReadFrom(batch) != nil {
		return nil
	}
	records, err := decompressor.Decompress(b.Records, kgo.CompressionCodecType(b.Attributes&7))
	if err != nil {
		return nil
	}
	for range b.NumRecords {
		size, n := binary.Varint(records)
		if n <= 0 || int(size) > len(records)-n {
			return keys
		}
		var r kmsg.Record
		if r.ReadFrom(records[:n+int(size)]) != nil {
			return keys
		}
		keys = append(keys, r.Key)
		records = records[n+int(size):]
	}
	return keys
}

// The moments of an owner's life.

func ownKey(key []byte) bool { return len(key) > 0 && key[0] == 0 }

// appends is a request that appends to a topic a record with such a key.
func appends(topic string, key func([]byte) bool) func(*kafkaRequest) bool {
	return func(q *kafkaRequest) bool { return slices.ContainsFunc(q.keysTo(topic), key) }
}

func keyIs(want string) func([]byte) bool {
	return func(key []byte) bool { return string(key) == want }
}

func noOwnKey(key []byte) bool { return !ownKey(key) }

// appendsSeveral is a request that appends several states at once, as only checkpoints do.
func appendsSeveral(topic string) func(*kafkaRequest) bool {
	return func(q *kafkaRequest) bool {
		keys := slices.DeleteFunc(q.keysTo(topic), ownKey)
		return len(keys) > 1
	}
}

// fetches is a request for a topic's records.
func fetches(topic string) func(*kafkaRequest) bool {
	return func(q *kafkaRequest) bool {
		return q.api == int16(kmsg.Fetch) && bytes.Contains(q.body, []byte(topic))
	}
}

// commits is a request that commits offsets.
func commits(q *kafkaRequest) bool { return q.api == int16(kmsg.OffsetCommit) }
