package blocklist

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/wire"
	"github.com/tallygate/tallygate/verdict"
)

// The file of a copy: copyMagic; then, each led by its length as a uvarint: the blocklist's prefix,
// the moment up to which it was in step (8 bytes, little-endian, µs), and the verdicts as JSON; at
// its end the CRC-32C of all before (4 bytes, little-endian).
const copyMagic = "tallygate blocklist 1\n"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type tableCopy struct {
	applied  event.Micros
	verdicts []verdict.Verdict // those that have not run out
}

// writeCopy replaces the file: whoever reads it finds the old one or the new one, also after a
// power cut.
func writeCopy(path, prefix string, applied event.Micros, all []*verdict.Verdict) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // for its owner only
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	err = encodeCopy(f, prefix, applied, all)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", f.Name(), err)
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

func encodeCopy(to io.Writer, prefix string, applied event.Micros, all []*verdict.Verdict) error {
	sum := crc32.New(castagnoli)
	w := bufio.NewWriterSize(io.MultiWriter(to, sum), 1<<16)
	_, _ = w.WriteString(copyMagic) // Flush has the error
	var length [binary.MaxVarintLen64]byte
	add := func(b []byte) {
		_, _ = w.Write(length[:binary.PutUvarint(length[:], uint64(len(b)))])
		_, _ = w.Write(b)
	}
	add([]byte(prefix))
	add(binary.LittleEndian.AppendUint64(nil, uint64(applied)))
	var text []byte
	for _, v := range all {
		text = verdict.AppendJSON(text[:0], v)
		add(text)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := to.Write(checksum(sum))
	return err
}

func checksum(sum hash.Hash32) []byte { return binary.LittleEndian.AppendUint32(nil, sum.Sum32()) }

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

var errBadCopy = errors.New("the file is damaged, or not a copy of a blocklist")

func readCopy(path, prefix string) (tableCopy, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return tableCopy{}, err
	}
	c, err := decodeCopy(b, prefix)
	if err != nil {
		return tableCopy{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func decodeCopy(b []byte, prefix string) (tableCopy, error) {
	sum := crc32.New(castagnoli)
	if len(b) < len(copyMagic)+sum.Size() || !bytes.HasPrefix(b, []byte(copyMagic)) {
		return tableCopy{}, errBadCopy
	}
	rest, sumOf := b[:len(b)-sum.Size()], b[len(b)-sum.Size():]
	_, _ = sum.Write(rest) // a hash has no errors
	if !bytes.Equal(checksum(sum), sumOf) {
		return tableCopy{}, errBadCopy
	}
	fields := wire.Reader{Buf: rest[len(copyMagic):]}
	if of := string(fields.Bytes()); of != prefix {
		return tableCopy{}, fmt.Errorf("it is a copy of the blocklist %.60q, not of %q", of, prefix)
	}
	applied := fields.Bytes()
	if len(applied) != 8 {
		return tableCopy{}, errBadCopy
	}
	c := tableCopy{applied: event.Micros(binary.LittleEndian.Uint64(applied))}
	now := event.FromTime(time.Now())
	for len(fields.Buf) > 0 {
		v, err := verdict.Parse(fields.Bytes())
		if err != nil {
			return tableCopy{}, fmt.Errorf("%w: %w", errBadCopy, err)
		}
		if v.Until > now {
			c.verdicts = append(c.verdicts, v)
		}
	}
	return c, nil
}
