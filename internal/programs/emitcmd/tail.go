package emitcmd

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/internal/tools/accesslog"
	"github.com/tallygate/tallygate/pipeline/emit"
)

const (
	lookEvery = 250 * time.Millisecond // at a followed file that has nothing new
	saveEvery = time.Second            // at most so often the state is written
)

// tail is a followed file whose lines are sent once: what Kafka has acknowledged is in the state file.
type tail struct {
	*follower
	file     *stateFile
	state    *state
	instance []byte
	base     int64 // the position at which the reader began

	reader  *accesslog.Reader
	emitter *emit.Emitter
	sending context.Context
	say     *reporter
	saved   time.Time
	failure string // of the last attempt to save, as told
}

// openTail opens the state, and the file at the place that it names; or, without a state, where --from
// says, and writes a state with that.
func (o *options) openTail(ctx context.Context) (*tail, error) {
	path, err := filepath.Abs(o.file)
	if err != nil {
		return nil, err
	}
	if o.state == "" {
		if o.state, err = defaultState(o.getenv, os.Getuid(), path, o.topic()); err != nil {
			return nil, err
		}
	}
	t := &tail{}
	if t.file, t.state, err = openState(o.state); err != nil {
		return nil, err
	}
	if err := t.open(ctx, o, path); err != nil {
		return nil, errors.Join(err, t.file.Close())
	}
	return t, nil
}

func (t *tail) open(ctx context.Context, o *options, path string) (err error) {
	later := func(format string, args ...any) { o.first = append(o.first, fmt.Sprintf(format, args...)) }
	if t.state.Version == 0 {
		t.state = newState(path, o.topic())
		if t.follower, err = newFollower(ctx, path, o.from == fromEnd); err != nil {
			return fmt.Errorf("open the input: %w", err)
		}
		if n := t.cur.offset; n > 0 {
			later("%s: beginning behind the %d bytes that it has; --from start sends these, too", o.file, n)
		}
	} else {
		if err = t.state.matches(path, o.topic()); err != nil {
			return fmt.Errorf("%s: %w", o.state, err)
		}
		if t.follower, err = resumeFollower(ctx, path, t.state.place, t.state.Position, t.state.Saved, later); err != nil {
			return fmt.Errorf("open the input: %w", err)
		}
	}
	t.every, t.base = lookEvery, t.position
	t.instance, _ = hex.DecodeString(t.state.Instance) // validated
	if at, ok := t.place(t.position); ok {
		t.state.place = at
	}
	return t.write()
}

// follow makes the tail send what it reads through the emitter.
func (t *tail) follow(sending context.Context, s *sender) {
	t.reader, t.emitter, t.sending, t.say = s.reader, s.emitter, sending, s.say
	t.follower.say = func(format string, args ...any) { s.say.Line(format, args...) }
	t.idle, t.moved = t.save, t.mustSave
	t.reader.NameLines(func(end int64) string { return lineID(t.instance, t.base+end) })
}

// at is the position behind the last line that was read.
func (t *tail) at() int64 { return t.base + t.reader.Offset() }

// save stores how far the file was sent, if that was a while ago. A failure is told once, and tried
// again: until then a restart sends more lines again, which count once.
func (t *tail) save() error {
	if t.at() == t.state.Position || time.Since(t.saved) < saveEvery {
		return nil
	}
	if err := t.saveNow(); err != nil {
		if t.sending.Err() != nil {
			return context.Cause(t.sending)
		}
		t.tell(err)
	}
	t.saved = time.Now()
	return nil
}

// mustSave stores where reading goes on in another file.
func (t *tail) mustSave() error {
	for {
		err := t.saveNow()
		if err == nil {
			return nil
		}
		if t.sending.Err() != nil {
			return context.Cause(t.sending)
		}
		t.tell(err)
		if !retry.Sleep(t.ctx, saveEvery) {
			return errStopped
		}
	}
}

func (t *tail) tell(err error) {
	if t.failure != err.Error() {
		t.failure = err.Error()
		t.say.Line("%v; trying again", err)
	}
}

// saveNow waits until Kafka has acknowledged what was read, and stores that.
func (t *tail) saveNow() error {
	if err := t.emitter.Flush(t.sending); err != nil {
		return err
	}
	at, ok := t.place(t.at())
	if !ok { // between two files
		return nil
	}
	t.state.Position, t.state.place = t.at(), at
	return t.write()
}

func (t *tail) write() error {
	t.state.Saved = time.Now().UTC()
	err := t.file.save(t.state)
	if err == nil {
		t.failure = ""
	}
	return err
}

// Close closes the files.
func (t *tail) Close() error { return errors.Join(t.follower.Close(), t.file.Close()) }

// name is the instance under which the tail's events are sent; a nil tail has none.
func (t *tail) name() []byte {
	if t == nil {
		return nil
	}
	return t.instance
}
