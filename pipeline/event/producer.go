package event

import "encoding/binary"

// The headers by which a consumer drops, exactly, whole records that a producer sent twice.
// A producer that retries keeps a record's sequence, and starts nothing newer on a partition
// before the retry is through: per partition and instance, what is not above the highest
// sequence seen is a repeat. Sequences start at 1 and may have gaps.
const (
	HeaderInstance = "tg-i" // names the producer's instance: any bytes, new at each start
	HeaderSequence = "tg-s" // the record's sequence on its partition: 8 bytes, big-endian
)

// AppendSequence appends the value of a HeaderSequence.
func AppendSequence(dst []byte, sequence uint64) []byte {
	return binary.BigEndian.AppendUint64(dst, sequence)
}

// ParseSequence reads the value of a HeaderSequence. It is false for any value that
// AppendSequence does not write for a sequence of 1 or more.
func ParseSequence(value []byte) (sequence uint64, ok bool) {
	if len(value) != 8 {
		return 0, false
	}
	sequence = binary.BigEndian.Uint64(value)
	return sequence, sequence > 0
}
