package shard

import (
	"strconv"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

const (
	maxBadIndexes    = 100
	maxDeadLetterKey = 4 << 10
	maxDetail        = 1024

	// ownHeader begins the names of the headers that the record had itself.
	ownHeader = "header:"
	// ownHeaderRoom is a header's size beside its name and value.
	ownHeaderRoom = 16

	// reasonUnreadable is why a dead letter is one that is no mistake in an event.
	reasonUnreadable = "unreadable"
)

// deadLetter keeps a record that contains invalid events, as it came, with why and from
// where. Its valid events count all the same.
func (l *Log) deadLetter(src Source, rec *record.Record, bad []event.BadEvent, err error) {
	reason, detail := reasonOf(bad, err)
	headers := append(l.letterHeaders(src, reason, detail, rec.Offset), ownIndexes(bad)...)
	value, key := rec.Value, rec.Key
	most := l.cfg.MaxDeadLetter
	headers, size := appendOwnHeaders(headers, rec.Headers, most/2)
	most -= size
	if len(value) > most || len(key) > maxDeadLetterKey {
		headers = append(headers, header("cut-from", int64(len(value))))
		value, key = value[:min(len(value), most)], key[:min(len(key), maxDeadLetterKey)]
	}
	letter := Aux{Topic: DeadLetters, At: rec.Time(), Key: key, Value: value, Headers: headers, Reason: reason}
	letter.own()
	l.out.Aux = append(l.out.Aux, letter)
}

// own gives what the record says memory of its own: while its topic takes nothing, it would keep the record's
// whole batch.
func (a *Aux) own() {
	size := len(a.Key) + len(a.Value)
	for i := range a.Headers {
		size += len(a.Headers[i].Key) + len(a.Headers[i].Value)
	}
	buf := make([]byte, 0, size)
	take := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		buf = append(buf, b...)
		return buf[len(buf)-len(b) : len(buf) : len(buf)]
	}
	a.Key, a.Value = take(a.Key), take(a.Value)
	for i := range a.Headers {
		a.Headers[i].Key, a.Headers[i].Value = take(a.Headers[i].Key), take(a.Headers[i].Value)
	}
}

// letterHeaders are those that every dead letter has.
func (l *Log) letterHeaders(src Source, reason, detail string, offset int64) []Header {
	return []Header{
		{[]byte("reason"), []byte(reason)},
		{[]byte("detail"), []byte(detail)},
		{[]byte("topic"), []byte(l.cfg.Topics.of(src).Name)},
		header("partition", int64(l.cfg.ID)),
		header("offset", offset),
	}
}

func header(name string, n int64) Header { return Header{[]byte(name), strconv.AppendInt(nil, n, 10)} }

func ownIndexes(bad []event.BadEvent) []Header {
	headers := make([]Header, 0, min(len(bad), maxBadIndexes))
	for _, b := range bad[:min(len(bad), maxBadIndexes)] {
		headers = append(headers, header("index", int64(b.Index)))
	}
	return headers
}

// reasonOf returns what a dead letter's headers say: a short reason, and the whole story.
func reasonOf(bad []event.BadEvent, err error) (reason, detail string) {
	reason = reasonUnreadable
	if len(bad) > 0 {
		reason = bad[0].Reason
	}
	if err == nil {
		return reason, ""
	}
	return reason, clip(err.Error())
}

// clip cuts what a dead letter's header says.
func clip(detail string) string { return detail[:min(len(detail), maxDetail)] }

// Unreadable is a range of offsets that cannot be read, now or later.
type Unreadable struct {
	First, Last int64
	TooLarge    bool  // it decompresses to more than is allowed
	Why         error // in short
	Detail      string
}

// PassOver goes on behind records that cannot be read, and keeps where they are as a dead letter:
// the range of their offsets, and why. It returns the first offset behind them, and how many were
// passed over.
func (l *Log) PassOver(src Source, next int64, bad Unreadable) (behind, records int64) {
	if bad.Last < next {
		return next, 0
	}
	reason := reasonUnreadable
	if bad.TooLarge {
		reason = event.ReasonTooLarge
	}
	first := max(bad.First, next)
	l.note(Error, "skipping unreadable records; the dead-letter topic has the range of offsets",
		"topic", l.cfg.Topics.of(src).Name, "first_offset", first, "last_offset", bad.Last, "reason", reason, "error", bad.Why)
	headers := append(l.letterHeaders(src, reason, clip(bad.Detail), first), header("last-offset", bad.Last))
	l.out.Aux = append(l.out.Aux, Aux{Topic: DeadLetters, Headers: headers, Reason: reason})
	return bad.Last + 1, bad.Last + 1 - first
}

// appendOwnHeaders appends the headers that a record had itself, up to so many bytes, and returns
// how many these are: first those that make it a CloudEvent, for without them its value is not the
// event. What finds no room is counted in headers-cut.
func appendOwnHeaders(dst []Header, own record.Headers, most int) (headers []Header, size int) {
	cut := 0
	for _, cloud := range []bool{true, false} {
		for left := own; ; {
			key, value, ok := left.Next()
			if !ok {
				break
			}
			if event.IsCloudEvents(key) != cloud {
				continue
			}
			n := len(ownHeader) + len(key) + len(value) + ownHeaderRoom
			if size+n > most {
				cut++
				continue
			}
			size += n
			dst = append(dst, Header{append([]byte(ownHeader), key...), value})
		}
	}
	if cut > 0 {
		dst = append(dst, header("headers-cut", int64(cut)))
	}
	return dst, size
}
