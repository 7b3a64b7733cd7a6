package event

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// PermitHeader is the HTTP header, and in lower case the gRPC metadata, in which a proxy's request
// carries its permit to the service.
const PermitHeader = "X-Tallygate-Permit"

// Header is the permit as PermitHeader has it: a JSON object in ASCII with the fields that the
// action's event is to have, permit and permit_at. It is "" for none.
func (p *Permit) Header() string {
	if p.ID == "" {
		return ""
	}
	own := p.clone()
	own.canonicalize()
	text := append(appendPermit([]byte{'{'}, 1, &own), '}')
	var out strings.Builder
	out.Grow(len(text))
	for _, r := range string(text) {
		switch high, low := utf16.EncodeRune(r); {
		case r < 0x7f: // a header takes no DEL
			out.WriteByte(byte(r))
		case high != utf8.RuneError:
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// ParsePermit is Header's inverse. It returns an error for what is no such object, and for one
// without a permit.
func ParsePermit(header string) (Permit, error) {
	if header == "" {
		return Permit{}, nil
	}
	const before = `{"api":"-",` // what is read is an event
	object, found := strings.CutPrefix(strings.TrimSpace(header), "{")
	if !found {
		return Permit{}, errNoPermit(errors.New("it is no JSON object"))
	}
	events, err := NewDecoder().Decode([]byte(before+object), nil, nil, nil)
	if err != nil {
		if bad, ok := errors.AsType[*BadEvent](err); ok {
			err = bad.Err
		}
		return Permit{}, errNoPermit(err)
	}
	if len(events) != 1 || events[0].Permit.ID == "" {
		return Permit{}, errNoPermit(errors.New("its permit is empty"))
	}
	return events[0].Permit.clone(), nil
}

func errNoPermit(why error) error {
	return fmt.Errorf("event: %s: %w: want {\"permit\": ID, \"permit_at\": …} as a proxy was given it", PermitHeader, why)
}
