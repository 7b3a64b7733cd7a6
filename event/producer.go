package event

import "encoding/binary"

// The headers by which a consumer drops, exactly, whole records that a producer sent twice.
// A producer that retries keeps a record's sequence, and starts nothing newer on a partition
// before the retry is through: per partition and instance, what is not above the highest
// sequence seen is a repeat. Sequences start at 1 and may have gaps.
//
// The partition is the one that the producer sent to. A mirror may merge several into one, where
// their sequences would be taken for one another's; without the header it is the one that the
// record is in.
const (
	HeaderInstance  = "tg-i" // names the producer's instance: any bytes, new at each start unless sequences go on
	HeaderSequence  = "tg-s" // the record's sequence on its partition: 8 bytes, big-endian
	HeaderPartition = "tg-p" // the partition that the producer sent it to: 4 bytes, big-endian
)

// HeaderClient names the producing program, as people call it. Nothing is counted otherwise for it; it is told
// where a producer does something wrong, since Kafka tells consumers nothing about producers.
const HeaderClient = "tg-c"

// AppendPartition appends the value of a HeaderPartition.
func AppendPartition(dst []byte, partition int32) []byte {
	return binary.BigEndian.AppendUint32(dst, uint32(partition))
}

// ParsePartition reads the value of a HeaderPartition; it is false for any value that
// AppendPartition does not write for a partition of 0 or more.
func ParsePartition(value []byte) (partition int32, ok bool) {
	if len(value) != 4 {
		return 0, false
	}
	partition = int32(binary.BigEndian.Uint32(value))
	return partition, partition >= 0
}

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
