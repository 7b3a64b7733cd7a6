// Package accesslog turns web servers' access logs, and files of events, into events.
package accesslog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/tallygate/tallygate/event"
)

// Format is the form of a line.
type Format string

// The formats.
const (
	Auto     Format = ""         // each line by itself: an object is NDJSON, else combined or common
	Combined Format = "combined" // common, then "referer" "agent"; what follows these is ignored
	Common   Format = "common"   // client ident user [time] "request" status bytes
	NDJSON   Format = "ndjson"   // one event's JSON a line, with broker_time if it has one

	VhostCombined Format = "vhost_combined" // combined behind the virtual host, which tells nothing
)

// FormatUsage describes an option for a format.
const FormatUsage = "`FORMAT` of the lines: combined, common, vhost_combined, ndjson, json, caddy or traefik; by default lines of the first four are recognized one by one"

// ParseFormat reads a format's name; "" is Auto.
func ParseFormat(name string) (Format, error) {
	f := Format(name)
	switch f {
	case Auto, Combined, Common, VhostCombined, NDJSON:
		return f, nil
	}
	l, err := newLayout(f)
	if err == nil && l == nil {
		err = errors.New("want combined, common, vhost_combined, ndjson, json, caddy or traefik")
	}
	if err != nil {
		return "", fmt.Errorf("unknown format %q: %w", name, err)
	}
	return f, nil
}

// MaxLine bounds a line's bytes.
const MaxLine = 256 << 10

// LineError is a line that is not an event. Reading may go on behind it.
type LineError struct {
	Line int // from 1
	Err  error
}

// Error describes the mistake and its line.
func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns Err.
func (e *LineError) Unwrap() error { return e.Err }

// Reader reads events, one a line. It is for one goroutine.
//
// An access log has no event ids, so a line's is a hash of it and of how many lines of the same
// bytes came before it in the input: reading the same file again gives the same ids. The Reader
// remembers the last one to two million different lines for that.
type Reader struct {
	in      *bufio.Reader
	format  Format
	line    int
	skipped int
	long    []byte // a line that the bufio.Reader's buffer does not hold
	seen    repeats
	name    func(end int64) string // nil: lines are named by what they say
	offset  int64
	decoder event.Decoder
	events  []event.Event
	parser  parser
	layout  *layout // of a format that ParseFormat returned; nil for those that have none
	alone   alone
	warn    func(string) // nil: nobody
}

// NewReader returns a Reader of r. It reads ahead of what Next has returned. To follow a file that
// grows, give it an r that waits at the end: io.EOF ends the last line, complete or not.
func NewReader(r io.Reader, format Format) *Reader {
	l, _ := newLayout(format) // ParseFormat has told mistakes
	return &Reader{in: bufio.NewReaderSize(r, 64<<10), format: format, layout: l, seen: newRepeats(1 << 20)}
}

// Reset makes the Reader go on with another input, whose lines are numbered from 1. It still knows
// the lines of the ones before.
func (r *Reader) Reset(in io.Reader) {
	r.in.Reset(in)
	r.line, r.offset = 0, 0
}

// NameLines gives events without an id one by where their lines end, instead of by what they say. To
// follow a file it has to be called: a Reader that begins in the middle of a log does not know which
// equal lines came before.
func (r *Reader) NameLines(name func(end int64) string) { r.name = name }

// Offset counts the bytes of the input in front of the next line.
func (r *Reader) Offset() int64 { return r.offset }

// Skipped counts the lines so far that were not events.
func (r *Reader) Skipped() int { return r.skipped }

// Suspects counts the events so far that look like a mistake of who wrote them.
func (r *Reader) Suspects() event.Suspects { return r.decoder.Suspects.Plus(r.parser.suspects) }

// Next returns the next event and its line's number. The event holds until the next call: Clone
// keeps it. A *LineError is one line that is not an event, counted and passed: call Next again.
// io.EOF is the end; any other error is the input's. Empty lines are passed silently.
func (r *Reader) Next() (event.Event, int, error) {
	for {
		text, err := r.readLine()
		if err != nil && !errors.Is(err, errTooLong) {
			return event.Event{}, r.line, err
		}
		if err == nil && len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		var e event.Event
		if err == nil {
			if e, err = r.parse(text); err != nil {
				err = r.advise(text, err)
			}
		}
		if err != nil {
			r.skipped++
			return event.Event{}, r.line, &LineError{Line: r.line, Err: err}
		}
		return e, r.line, nil
	}
}

func (r *Reader) parse(text []byte) (event.Event, error) {
	if r.format == NDJSON || (r.format == Auto && bytes.TrimLeft(text, " \t")[0] == '{') {
		return r.parseJSON(text)
	}
	var e event.Event
	var err error
	if r.layout != nil {
		e, err = r.layout.parse(text, &r.parser)
	} else {
		e, err = r.parser.parse(text, r.format)
	}
	if err != nil {
		if what := event.Recognize(text); r.line == 1 && what != "" { // how a whole file begins
			err = fmt.Errorf("%w; %s", err, what)
		}
		return event.Event{}, err
	}
	if text := r.alone.count(&e); text != "" && r.warn != nil {
		r.warn(text)
	}
	if r.name == nil {
		e.ID = r.seen.id(text)
	} else {
		e.ID = r.name(r.offset)
	}
	return e, nil
}

var errNotOne = errors.New("not exactly one event: write one object per line")

func (r *Reader) parseJSON(text []byte) (event.Event, error) {
	var err error
	if r.events, err = r.decoder.Decode(text, nil, nil, r.events[:0]); err != nil {
		return event.Event{}, r.decoder.Bad[0].Err
	}
	if len(r.events) != 1 {
		return event.Event{}, errNotOne
	}
	if e := &r.events[0]; r.name != nil && e.ID == "" {
		e.ID = r.name(r.offset)
	}
	return r.events[0], nil
}

var errTooLong = fmt.Errorf("longer than %d bytes", MaxLine)

// readLine returns the next line without its end. It is valid until the next call. The last line may lack its
// newline where the input ends. Where it fails, Offset stays in front of the line: it may have been read in part.
func (r *Reader) readLine() ([]byte, error) {
	text, err := r.in.ReadSlice('\n')
	if len(text) == 0 {
		return nil, err
	}
	n := len(text)
	if errors.Is(err, bufio.ErrBufferFull) {
		text, n, err = r.readLong(text)
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errTooLong) {
		return nil, err
	}
	r.line++
	r.offset += int64(n)
	if errors.Is(err, errTooLong) {
		return nil, err
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r")), nil
}

// readLong returns the whole of a line that begins so, and its length, also of one that is too long.
func (r *Reader) readLong(start []byte) (line []byte, n int, err error) {
	r.long, n = append(r.long[:0], start...), len(start)
	for {
		text, err := r.in.ReadSlice('\n')
		n += len(text)
		if len(r.long) <= MaxLine {
			r.long = append(r.long, text...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && !errors.Is(err, io.EOF):
			return nil, n, err
		case len(r.long) > MaxLine:
			return nil, n, errTooLong
		default:
			return r.long, n, nil
		}
	}
}
