package devstack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Attributes of a batch: how its records are compressed, and who stamped them.
const (
	codecBits     = 0x07
	logAppendTime = 0x08
)

// uncompressed bounds the batches that stay uncompressed once they are stamped: compressing takes more memory than
// all else here. The broker refuses a batch that is too large as it is.
const uncompressed = 64 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// stamper gives records of topics with message.timestamp.type=LogAppendTime the time of
// their append. kfake itself looks at the batch's attribute only, which producers never set;
// and setting it here would not do: kfake then rewrites the timestamps and keeps the old
// checksum, which clients refuse. So the records carry the time as if their producer had
// stamped them.
type stamper struct {
	cluster     *kfake.Cluster
	compressors map[kgo.CompressionCodecType]kgo.Compressor // made when first needed
}

func newStamper(cluster *kfake.Cluster) *stamper {
	return &stamper{cluster: cluster, compressors: make(map[kgo.CompressionCodecType]kgo.Compressor)}
}

// control sees every produce request before the broker handles it, one at a time.
func (s *stamper) control(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
	produce := req.(*kmsg.ProduceRequest)
	now := time.Now().UnixMilli()
	for i := range produce.Topics {
		t := &produce.Topics[i]
		if !s.stamps(t) {
			continue
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			// What cannot be read stays unchanged, and the broker reports what is wrong.
			if stamped, err := s.stamp(p.Records, now); err == nil {
				p.Records = stamped
			}
		}
	}
	return nil, nil, false
}

// stamps reports whether the topic's records get the time of their append.
func (s *stamper) stamps(t *kmsg.ProduceRequestTopic) bool {
	var info *kfake.TopicInfo
	if t.Topic != "" {
		info = s.cluster.TopicInfo(t.Topic)
	} else {
		info = s.cluster.TopicIDInfo(t.TopicID)
	}
	if info == nil {
		return false
	}
	kind := info.Configs["message.timestamp.type"]
	return kind != nil && *kind == "LogAppendTime"
}

var decompressor = kgo.DefaultDecompressor()

var errBatch = errors.New("devstack: not a record batch")

// stamp returns the encoded batch with now, in Unix milliseconds, as the timestamp of each of
// its records. A batch whose bytes are damaged is an error.
func (s *stamper) stamp(batch []byte, now int64) ([]byte, error) {
	var b kmsg.RecordBatch
	if err := b.ReadFrom(batch); err != nil {
		return nil, fmt.Errorf("read a record batch: %w", err)
	}
	if b.Magic != 2 || int(b.Length) != len(batch)-12 || uint32(b.CRC) != crc32.Checksum(batch[21:], castagnoli) {
		return nil, errBatch
	}
	codec := kgo.CompressionCodecType(b.Attributes & codecBits)
	records, err := decompressor.Decompress(b.Records, codec)
	if err != nil {
		return nil, fmt.Errorf("decompress a record batch: %w", err)
	}
	if records, err = clearDeltas(records, int(b.NumRecords)); err != nil {
		return nil, err
	}
	b.Attributes &^= logAppendTime
	if b.Records = records; len(records) <= uncompressed {
		b.Attributes &^= codecBits
	} else if b.Records, err = s.compress(records, codec); err != nil {
		return nil, err
	}
	b.FirstTimestamp, b.MaxTimestamp = now, now
	b.Length = int32(49 + len(b.Records)) // what follows Length, in front of the records
	out := b.AppendTo(nil)
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], castagnoli))
	return out, nil
}

// clearDeltas returns the n records with timestamps that equal their batch's first. A record
// is its length, one byte of attributes, its timestamp's delta and the rest.
func clearDeltas(records []byte, n int) ([]byte, error) {
	out := make([]byte, 0, len(records))
	for range n {
		length, size := binary.Varint(records)
		if size <= 0 || length < 2 || length > int64(len(records)-size) {
			return nil, errBatch
		}
		record := records[size:][:length]
		records = records[size:][length:]
		_, delta := binary.Varint(record[1:])
		if delta <= 0 {
			return nil, errBatch
		}
		out = binary.AppendVarint(out, length-int64(delta)+1)
		out = append(out, record[0], 0)
		out = append(out, record[1+delta:]...)
	}
	if len(records) > 0 {
		return nil, errBatch
	}
	return out, nil
}

var codecs = map[kgo.CompressionCodecType]kgo.CompressionCodec{
	kgo.CodecGzip:   kgo.GzipCompression(),
	kgo.CodecSnappy: kgo.SnappyCompression(),
	kgo.CodecLz4:    kgo.Lz4Compression(),
	kgo.CodecZstd:   kgo.ZstdCompression(),
}

func (s *stamper) compress(records []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if codec == kgo.CodecNone {
		return records, nil
	}
	c := s.compressors[codec]
	if c == nil {
		var err error
		if c, err = kgo.DefaultCompressor(codecs[codec]); err != nil {
			return nil, fmt.Errorf("compress a record batch: %w", err)
		}
		s.compressors[codec] = c
	}
	out, used := c.Compress(new(bytes.Buffer), records)
	if used != codec {
		return nil, fmt.Errorf("compress a record batch: codec %d became %d", codec, used)
	}
	return out, nil
}
