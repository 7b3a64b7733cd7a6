package kafkalog

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What readers hold is bounded by shares, so that no reader waits for another one: of its share, each has three
// quarters in memory at most, and asks for one more. Where shares are so small that batches are larger, what
// all hold together decides, and the readers take turns.

// leastQuarter is the least that is asked for where there are many readers. A batch comes whole all the same.
const leastQuarter = 4 << 10

// holding sums the memory of all readers. The fetcher's lock guards it.
type holding struct {
	bytes int64
	asked int64 // that are on their way at most
	short bool  // readers wait until others release something
}

// hold notes what a reader holds more. The fetcher is locked.
func (f *served) hold(r *Reader, bytes int) {
	r.held += bytes
	f.holding.bytes += int64(bytes)
	f.cfg.OnHold(int64(bytes))
}

// release notes what a reader holds no more; what it held when it was closed is no more held. The fetcher is
// locked.
func (f *served) release(r *Reader, bytes int) {
	if bytes = min(bytes, r.held); bytes > 0 {
		f.hold(r, -bytes)
	}
}

// roomFor has more asked for, if there is room again. The fetcher is locked.
func (f *served) roomFor(r *Reader) {
	if f.holding.short {
		f.wakeAll()
	} else if n := f.nodes[r.spot()]; n != nil {
		n.signal()
	}
}

// quarter is a fourth of a reader's share. The fetcher is locked.
func (f *served) quarter() int64 {
	return max(leastQuarter, f.cfg.HoldBytes/int64(max(1, len(f.readers)))/4)
}

// full reports whether a reader holds enough. The fetcher is locked.
func (f *served) full(r *Reader) bool {
	return r.queued >= int(f.cfg.PartitionBytes) || f.cfg.HoldBytes > 0 && int64(r.held) >= 3*f.quarter()
}

// sizeFor returns the number of bytes to ask for of a reader's partition. The fetcher is locked.
func (f *served) sizeFor(r *Reader) int32 {
	if f.cfg.HoldBytes == 0 {
		return r.size
	}
	return int32(max(min(int64(r.size), f.quarter()), int64(r.need)))
}

// fits reports whether so much more may be asked for, beside what is in the same request. The fetcher is
// locked.
func (f *served) fits(sum int64, size int32) bool {
	h := &f.holding
	if f.cfg.HoldBytes == 0 || h.bytes+sum == 0 || h.bytes+h.asked+sum+int64(size) <= f.cfg.HoldBytes {
		return true
	}
	h.short = true
	return false
}

// answers notes that a request for so many bytes is on its way no more. The fetcher is locked.
func (f *served) answers(size int64) {
	f.holding.asked -= size
	if f.holding.short {
		f.wakeAll()
	}
}

// wakeAll has all nodes look whether they may ask for more. The fetcher is locked.
func (f *served) wakeAll() {
	f.holding.short = false
	for _, n := range f.nodes {
		n.signal()
	}
}

// bytesOf counts a response's bytes of a log.
func bytesOf(resp *kmsg.FetchResponse) (n int) {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			n += len(resp.Topics[i].Partitions[j].RecordBatches)
		}
	}
	return n
}

// apart gives a part of a response memory of its own, unless it is most of it, and returns how much it
// holds: a partition that is read slowly would keep what has come for all.
func apart(part []byte, all int) (own []byte, held int) {
	if len(part) >= all-all/4 {
		return part, all
	}
	return bytes.Clone(part), len(part)
}
