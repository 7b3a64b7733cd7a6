package decision

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
)

// value is an attribute in the form that keys compare: the text of a string, a number or a boolean.
type value event.Value

func (v *value) UnmarshalJSON(data []byte) error {
	switch data[0] {
	case '"':
		*v = value{Kind: event.String}
		return json.Unmarshal(data, &v.Text)
	case '{', '[':
		return errors.New("an attribute is a string, a number or a boolean")
	case 'n':
		*v = value{}
	case 't', 'f':
		*v = value{Kind: event.Bool, Text: string(data)}
	default:
		text, ok := event.CanonicalNumber(string(data))
		if !ok {
			return fmt.Errorf("attribute %.40s: a number out of range", data)
		}
		*v = value{Kind: event.Number, Text: text}
	}
	return nil
}

// uid is a user's id as events have it: a string or an integer.
type uid string

func (u *uid) UnmarshalJSON(data []byte) error {
	switch data[0] {
	case '"':
		return json.Unmarshal(data, (*string)(u))
	case 'n':
		*u = ""
		return nil
	}
	if _, err := strconv.ParseInt(string(data), 10, 64); err != nil && !errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("uid %.40s: a string or an integer", data)
	}
	*u = uid(data)
	if *u == "-0" {
		*u = "0"
	}
	return nil
}

// span is a time span: a string such as "800ms", or a number of seconds.
type span time.Duration

func (s *span) UnmarshalJSON(data []byte) error {
	var text string
	var d time.Duration
	var err error
	switch data[0] {
	case 'n':
		return nil
	case '"':
		if err = json.Unmarshal(data, &text); err == nil {
			d, err = time.ParseDuration(text)
		}
	default:
		var seconds event.Decimal
		seconds, err = event.ParseDecimal(string(data))
		d = event.Micros(seconds).Duration() // both count millionths
	}
	if err != nil || d < 0 {
		return fmt.Errorf(`wait: %.40s is no time span: use a string such as "800ms" or "2s", or a number of seconds`, data)
	}
	*s = span(d)
	return nil
}

// dims returns the check's dimensions, sorted by name. Empty ones are absent.
func (c *query) dims() ([]event.Dim, error) {
	if c.API == "" {
		return nil, errors.New("api is required")
	}
	return c.dimensions()
}

// dimensions is dims for questions that need no API.
func (c *query) dimensions() ([]event.Dim, error) {
	var out []event.Dim
	for name, v := range c.Attrs {
		if v.Text != "" {
			out = append(out, event.Dim{Name: "attrs." + name, Value: v.Text})
		}
	}
	if c.IP != "" {
		ip, ok := event.ParseAddress(c.IP)
		if !ok {
			return nil, fmt.Errorf("ip %q is not an IPv4 or IPv6 address", c.IP)
		}
		out = append(out, event.Dim{Name: "ip", Value: ip.String()})
	}
	if c.UID != "" {
		out = append(out, event.Dim{Name: "uid", Value: string(c.UID)})
	}
	slices.SortFunc(out, func(a, b event.Dim) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
