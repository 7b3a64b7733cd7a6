package emit

import (
	"github.com/tallygate/tallygate/event"
)

// plain reports whether a canonical event, encoded in size bytes, is valid at first sight. It
// accepts nearly all that event.Validate accepts and nothing that it refuses, but allocates nothing
// and does not encode the event a second time; what is not plain goes to Validate, which also finds
// the words for what is wrong.
func plain(e *event.Event, size int) bool {
	if e.API == "" || e.Cost < 0 || size > event.MaxBytes || len(e.Attrs) > event.MaxAttrs ||
		!plainText(e.API, event.MaxAPI) || !plainText(e.UID, event.MaxUID) ||
		!plainText(e.ID, event.MaxID) || !plainText(e.Refunds, event.MaxID) {
		return false
	}
	if e.IP.Zone() != "" || e.IP.Is4In6() {
		return false
	}
	if e.Time != event.NoTime && (e.Time < event.MinTime || e.Time > event.MaxTime) {
		return false
	}
	for i := range e.Attrs {
		if !plainValue(e.Attrs[i].Value) {
			return false
		}
		for j := range i {
			if e.Attrs[j].Name == e.Attrs[i].Name {
				return false
			}
		}
	}
	return true
}

// plainText accepts printable ASCII up to the limit.
func plainText(s string, limit int) bool {
	if len(s) > limit {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// plainValue accepts strings, booleans, and numbers of up to 15 digits without fraction.
func plainValue(v event.Value) bool {
	switch v.Kind {
	case event.String:
		return true
	case event.Bool:
		return v.Text == "true" || v.Text == "false"
	case event.Number:
		for i := range len(v.Text) {
			if c := v.Text[i]; c < '0' || c > '9' {
				return false
			}
		}
		return v.Text == "0" || v.Text != "" && len(v.Text) <= 15 && v.Text[0] != '0'
	}
	return false
}
