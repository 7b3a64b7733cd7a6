package kafkalog

import (
	"context"
	"errors"
	"slices"
	"time"
)

var (
	// ErrOutOfRange is wrapped by a reader's error when the log does not have its offset.
	ErrOutOfRange = errors.New("kafkalog: there is no such offset")

	// ErrCut is wrapped by a reader's error when the log was cut below its offset, and may have
	// grown again: another replica leads, or a disk came back without its end.
	ErrCut = errors.New("kafkalog: the log was cut")

	// ErrTopicChanged is wrapped by a reader's error when its topic was created anew.
	ErrTopicChanged = errors.New("kafkalog: the topic was created anew")

	errClosed = errors.New("kafkalog: the reader is closed")
)

// Reader reads one partition. Make it with Fetcher.Read. Its methods are for one goroutine.
type Reader struct {
	fetcher   *Fetcher
	topic     string
	partition int32
	unpack    *unpacker
	ready     chan struct{} // holds one: there is something, or the end

	// The fetcher's lock guards what follows.
	id     [16]byte // of the topic; zero where brokers know none
	next   int64    // the offset to ask for
	size   int32    // how much to ask for
	leader int32    // noLeader when it is to be found
	lane   int      // of the leader
	epoch  int32    // the leader's
	last   int32    // the epoch of the leader that took what lies below next; noEpoch when that is not known
	asked  int32    // the leader's epoch under which it was asked whether the log was cut below next

	end      int64     // the partition's, by the last answer; -1 before the first
	heard    time.Time // when the last answer came that was none of refusal
	trouble  error     // why there was none since
	failures int       // since the last answer
	retryAt  time.Time // when to look for the leader
	logged   bool      // that it fails

	queue   []Chunk // what has come and was not taken
	queued  int     // bytes of it
	held    int     // bytes of queue, and of what was taken and is not released
	taken   int     // bytes of the last chunk that was taken, unless keeps is set
	keeps   bool    // see Keep
	need    int     // that a batch has which was cut off
	skipped bool    // it was not asked for: too much is held
	err     error   // why there is no more
}

const noLeader = -1

// Next returns what comes next. It waits until there is something, and returns an error that
// asking again does not cure, or ctx's.
func (r *Reader) Next(ctx context.Context) (Chunk, error) {
	for {
		c, ok, err := r.Poll()
		if ok || err != nil {
			return c, err
		}
		select {
		case <-r.ready:
		case <-ctx.Done():
			return Chunk{}, ctx.Err()
		}
	}
}

// Poll is Next without waiting.
func (r *Reader) Poll() (c Chunk, ok bool, err error) {
	r.fetcher.mu.Lock()
	defer r.fetcher.mu.Unlock()
	if len(r.queue) == 0 {
		return Chunk{}, false, r.err
	}
	c = r.queue[0]
	r.queue = slices.Delete(r.queue, 0, 1)
	r.queued -= len(c.raw)
	if !r.keeps {
		r.fetcher.release(r, r.taken)
		r.taken = c.held
	}
	r.fetcher.roomFor(r)
	return c, true, nil
}

// Keep counts chunks that are taken from here on as held until Release, for readers that hand chunks on. Otherwise a
// chunk is held until the next one is taken.
func (r *Reader) Keep() {
	r.fetcher.mu.Lock()
	defer r.fetcher.mu.Unlock()
	r.keeps = true
}

// Release gives back what chunks have held, when nothing refers to them. It may be called by any
// goroutine.
func (r *Reader) Release(bytes int) {
	r.fetcher.mu.Lock()
	defer r.fetcher.mu.Unlock()
	r.fetcher.release(r, bytes)
	r.fetcher.roomFor(r)
}

// spot returns the reader's spot. The fetcher is locked.
func (r *Reader) spot() spot { return spot{r.leader, r.lane} }

// Progress is a reader's position.
type Progress struct {
	End  int64     // the partition's end, as the last answer has it, also one without records; -1 before the first
	At   time.Time // of the last answer; before the first, of Fetcher.Read. Now while enough is held, and nothing is asked for
	Err  error     // why there is no answer since, nil while all is well
	Next int64     // the offset behind what has come
}

// Progress may be called by any goroutine.
func (r *Reader) Progress() Progress {
	r.fetcher.mu.Lock()
	defer r.fetcher.mu.Unlock()
	p := Progress{End: r.end, At: r.heard, Err: r.trouble, Next: r.next}
	if r.err == nil && (r.skipped || r.fetcher.full(r)) {
		p.At, p.Err = time.Now(), nil
	}
	return p
}

// Close ends the reader. What an answer that is on its way brings for it is dropped.
func (r *Reader) Close() {
	f := r.fetcher
	f.mu.Lock()
	defer f.mu.Unlock()
	r.queue, r.queued, r.err = nil, 0, errClosed
	f.release(r, r.held)
	f.roomFor(r)
	f.readers = slices.DeleteFunc(f.readers, func(other *Reader) bool { return other == r })
}

// fail ends the reader with an error. The fetcher is locked.
func (r *Reader) fail(err error) {
	if r.err == nil {
		r.err = err
		r.fetcher.tell(r, err)
	}
	r.signal()
}

func (r *Reader) signal() {
	select {
	case r.ready <- struct{}{}:
	default:
	}
}
