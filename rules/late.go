package rules

import "github.com/tallygate/tallygate/event"

// TooLate says, of the count of a limit that an event was too late for, why it does not add to it; "" when the
// event's time is within what is counted.
func (x *Explanation) TooLate(at event.Micros) string {
	switch {
	case x.Reset != 0 && at <= x.Reset:
		return "it is not after the reset at " + x.Reset.String()
	case at < x.From:
		return "it happened before the window, which begins at " + x.From.String()
	}
	return ""
}
