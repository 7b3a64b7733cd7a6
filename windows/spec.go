package windows

import (
	"errors"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
)

// defaultPanes is how many panes a sliding window has unless its Resolution says otherwise.
const defaultPanes = 60

// Validate returns all that is wrong, joined, and sets what was left to its default:
// Resolution and Zone. Fields that the Kind does not use are not looked at.
func (s *Spec) Validate() error {
	var errs []error
	if s.Kind < Tumbling || s.Kind > Bucket {
		errs = append(errs, fmt.Errorf("windows: unknown kind %d", s.Kind))
	}
	if s.Kind != Sliding && s.Kind != Bucket {
		errs = append(errs, checkSpan("lateness", s.Lateness, 0))
	}
	if s.Kind == Tumbling || s.Kind == Sliding || s.Kind == Bucket {
		errs = append(errs, checkSpan("per", s.Per, 1))
	}
	errs = append(errs, s.validateCount())
	switch {
	case s.Kind == Session:
		errs = append(errs, checkSpan("gap", s.Gap, 1))
	case s.Kind == Bucket && s.Limit < 1:
		errs = append(errs, fmt.Errorf("windows: a bucket's limit is %v, not positive", s.Limit))
	case s.Kind == Bucket && s.Most < 0:
		errs = append(errs, fmt.Errorf("windows: a bucket's greatest level is %v, below zero", s.Most))
	case s.Kind == Tumbling:
		errs = append(errs, checkSpan("offset", s.Offset, -MaxTime))
	case s.Kind == Calendar:
		errs = append(errs, s.validateCalendar())
	case s.Kind == Sliding && !s.Exact:
		errs = append(errs, s.validatePanes())
	}
	return errors.Join(errs...)
}

// validateCount: what cannot be counted, or not be taken back.
func (s *Spec) validateCount() error {
	switch {
	case s.Distinct && s.Kind == Bucket:
		return errors.New("windows: a bucket does not count distinct values")
	case s.Estimate && (!s.Distinct || s.Kind == Sliding):
		return errors.New("windows: only distinct values are estimated, and not in sliding windows")
	case s.Refunds && (s.Distinct || s.Kind == Session || s.Kind == Bucket):
		return errors.New("windows: nothing is taken back from sessions, buckets and distinct values")
	}
	return nil
}

func (s *Spec) validateCalendar() error {
	if s.Zone == nil {
		s.Zone = time.UTC
	}
	var errs []error
	if s.Unit < Hour || s.Unit > Year {
		errs = append(errs, fmt.Errorf("windows: unknown unit %d", s.Unit))
	}
	if s.WeekStarts < time.Sunday || s.WeekStarts > time.Saturday {
		errs = append(errs, fmt.Errorf("windows: weeks cannot start on day %d, days are 0 (Sunday) to 6", s.WeekStarts))
	}
	return errors.Join(errs...)
}

func (s *Spec) validatePanes() error {
	if s.Per < 1 {
		return nil // reported already
	}
	if s.Resolution == 0 {
		s.Resolution = max(s.Per/defaultPanes, 1)
	}
	switch {
	case s.Resolution < 0 || s.Resolution > s.Per:
		return fmt.Errorf("windows: resolution %v is not between 1µs and per, %v", s.Resolution.Duration(), s.Per.Duration())
	case (s.Per-1)/s.Resolution >= MaxPanes:
		return fmt.Errorf("windows: resolution %v makes more than %d panes of %v", s.Resolution.Duration(), MaxPanes, s.Per.Duration())
	}
	return nil
}

func checkSpan(name string, v, least event.Micros) error {
	if v < least || v > MaxTime {
		return fmt.Errorf("windows: %s is %d µs, not between %d and %d", name, v, least, MaxTime)
	}
	return nil
}

// MaxBytes bounds the states that Add makes, with room for what it does on the way.
func (s *Spec) MaxBytes() int {
	switch {
	case s.Distinct && s.Kind == Sliding:
		return headBytes + (ExactDistinct+1)*recentBytes
	case s.Distinct:
		return headBytes + frameVarint*maxVarint + 2*setBytes
	case s.Kind == Session:
		return headBytes + (frameVarint+2)*maxVarint
	case s.Kind == Bucket:
		return headBytes + 2*maxVarint
	case s.Kind == Tumbling:
		return headBytes + 2*maxVarint
	case s.Kind == Calendar:
		return calendarHeadBytes + 4*maxVarint
	case s.Exact:
		return s.maxBytesExact()
	default:
		return s.maxBytesPanes()
	}
}

// Check tells whether state, empty or from anywhere, is a state of this Spec: one that the
// other methods can work on. States that Add made always are. Edges of a Calendar window that
// other zone data gave are let pass: they hold until their window has ended.
func (s *Spec) Check(state []byte) error {
	if len(state) == 0 {
		return nil
	}
	f, newest := s.format(), s.format()
	if f == formatExact {
		newest = formatTail
	}
	if state[0]&kindBits == f&kindBits && state[0] > newest {
		return fmt.Errorf("%w: format %#02x, this one reads %#02x", ErrNewer, state[0], newest)
	}
	if state[0] != f && state[0] != newest {
		return fmt.Errorf("windows: state has format %#02x, not %#02x", state[0], f)
	}
	var err error
	switch f {
	case formatTumbling:
		err = s.checkTumbling(state)
	case formatCalendar:
		err = s.checkCalendar(state)
	case formatExact:
		err = s.checkExact(state)
	case formatPanes:
		err = s.checkPanes(state)
	case formatSession:
		err = s.checkSession(state)
	case formatBucket:
		err = s.checkBucket(state)
	case formatDistinct:
		err = s.checkDistinct(state)
	case formatRecent:
		err = s.checkRecent(state)
	}
	if err != nil {
		return fmt.Errorf("windows: check state: %w", err)
	}
	return nil
}
