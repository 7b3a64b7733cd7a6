package emit

import (
	"context"
	"errors"

	"github.com/tallygate/tallygate/event"
)

var (
	errNoInstance = errors.New("emit: EmitAt needs Config.Instance")
	errNoPosition = errors.New("emit: with Config.Instance each event needs a position: call EmitAt")
)

// EmitAt is EmitWait for programs that begin again where they stopped, such as one that follows a
// file. position is the event's place in all that the program reads: 1 or more, and greater than
// that of the call before. Config.Instance names what is read, and stays the same over restarts.
//
// So a program that was killed may send again what it is not sure of: aggregators drop exactly the
// records that they have had, as long as the same position always has the same event.
func (e *Emitter) EmitAt(ctx context.Context, ev event.Event, position uint64) error {
	if len(e.cfg.Instance) == 0 || position == 0 {
		return errNoInstance
	}
	return e.wait(ctx, &ev, position)
}

// Flush waits until nothing is queued: every event that was accepted before is acknowledged by the
// broker, or was dropped. It returns ctx's error if ctx ends first.
func (e *Emitter) Flush(ctx context.Context) error {
	e.room.enter()
	defer e.room.leave()
	for {
		changed := e.room.next() // before the look, so that no broadcast is missed
		if e.queued.empty() {
			return nil
		}
		select {
		case <-changed:
		case <-e.done: // its context ended: what was left is dropped
			return ctx.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// positioned returns an error for an event with a position where there must be none, or without one
// where there must be one: the sequences of one instance are of one kind.
func (e *Emitter) positioned(position uint64) error {
	if position == 0 && len(e.cfg.Instance) > 0 {
		return errNoPosition
	}
	return nil
}
