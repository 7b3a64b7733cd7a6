package admit

import (
	"context"
	"errors"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/shape"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// line queues requests under a rule whose action is throttle.
type line struct {
	key      string // "": nowhere
	by       *rules.Limit
	of       string        // the key that the limit counts by
	limit    event.Decimal // as the denied are told
	after    time.Duration
	interval time.Duration
	behind   bool // it was not denied, but others wait
}

func lineKey(l *rules.Limit, key string) string { return l.Name + "\x00" + key }

func lineOf(l *rules.Limit, key string, n Numbers, amount event.Decimal) line {
	out := line{key: lineKey(l, key), by: l, of: key, limit: n.Limit, after: n.RetryAfter}
	per := l.PerMin
	if l.Burst > 0 {
		per, n.Limit = l.Window.Per, l.Window.Limit
	}
	if n.Limit > 0 {
		out.interval = time.Duration(float64(per.Duration()) / float64(n.Limit) * float64(amount))
	}
	return out
}

// behind notes that others wait for a limit.
func (t *attempt) behind(w *rules.Want) {
	if w.Limit.Rule.Action != verdict.ActThrottle || t.maxDelay() < 0 || !t.a.lines.Busy() {
		return
	}
	if key := lineKey(w.Limit, string(w.Key)); t.a.lines.Has([]byte(key)) {
		t.line = line{key: key, by: w.Limit, of: string(w.Key), limit: max(w.Threshold, 0), behind: true}
	}
}

// wait waits in the line that an attempt has named, and tries again. denied is that attempt's answer;
// nil: it has only seen others wait.
func (a *Admitter) wait(ctx context.Context, t *attempt, denied *Permit) (*Permit, error) {
	deadline := time.Now().Add(t.maxDelay())
	for t.line.key != "" {
		entry := shape.Entry{
			Key: t.line.key, From: time.Now().Add(t.line.after), Interval: t.line.interval, Behind: t.line.behind,
			Most: time.Until(deadline), Room: a.cfg.MaxDelayedPerKey,
		}
		turn, err := a.lines.Enter(entry)
		if late := (*shape.Late)(nil); errors.As(err, &late) {
			return t.late(denied, late), nil
		}
		t.inLine = true
		if turn == nil { // those who waited have left
			if denied, err = t.run(ctx); err != nil {
				return nil, err
			}
			continue
		}
		var retry bool
		if denied, retry, err = a.take(ctx, t, turn, denied); err != nil || !retry {
			return denied, err
		}
	}
	return denied, nil
}

// take waits for a turn and tries, as long as the line is the same. retry is to wait in another one.
func (a *Admitter) take(ctx context.Context, t *attempt, turn *shape.Turn, denied *Permit) (permit *Permit, retry bool, err error) {
	defer turn.Leave()
	key := t.line.key
	for {
		late := (*shape.Late)(nil)
		if err := turn.Wait(ctx); errors.As(err, &late) {
			return t.late(denied, late), false, nil
		} else if err != nil {
			return nil, false, err
		}
		if denied, err = t.run(ctx); err != nil {
			return nil, false, err
		}
		switch {
		case denied.Admitted:
			turn.Release()
			return denied, false, nil
		case t.line.key != key:
			return denied, t.line.key != "", nil
		}
		if err := turn.Postpone(time.Now().Add(t.line.after)); errors.As(err, &late) {
			return t.late(denied, late), false, nil
		}
	}
}

// late denies a request whose turn would come too late, and says when it would. Of one that has only seen
// others wait, the limit that they wait for is the one that denies.
func (t *attempt) late(denied *Permit, late *shape.Late) *Permit {
	if denied == nil {
		denied = &Permit{a: t.a, By: t.line.by, Key: t.line.of, Numbers: Numbers{Limited: true, Limit: t.line.limit}}
	}
	if n := &denied.Numbers; time.Until(late.Turn) > n.RetryAfter {
		n.RetryAfter, n.RetryAt = time.Until(late.Turn), event.FromTime(late.Turn)
	}
	denied.Reason = "its turn would come too late, or too many wait"
	return denied
}
