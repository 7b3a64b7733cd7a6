// Package shape makes requests wait in line: those of one key leave one by one, in the order in
// which they came, as far apart as the key's limit allows.
//
//	turn, err := shaper.Enter(shape.Entry{Key: "uid=42", From: end, Interval: every, Most: time.Second})
//	if err != nil {
//		return err // a *Late: when its turn would have been
//	}
//	defer turn.Leave()
//	for {
//		if err := turn.Wait(ctx); err != nil {
//			return err
//		}
//		from, ok := ask() // whoever is first asks again
//		if ok {
//			turn.Release() // the next one may leave an interval later
//			return nil
//		}
//		if err := turn.Postpone(from); err != nil {
//			return err
//		}
//	}
//
// It knows neither verdicts nor permits: what a key is, and what is asked again, is its caller's
// business. It has no goroutine of its own. Each of those who wait has a timer, and only the first
// of a line asks. No lock is held while one waits or asks.
//
// Who enters learns at once when the turn would be too late, and does not wait in vain. So do those
// who wait when the line is put off. A line is a few words for each who waits. It goes with the last
// one; if that was released, an interval after it, so that the next one to come keeps the distance.
package shape
