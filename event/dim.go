package event

import (
	"errors"
	"fmt"
	"strings"
)

// MaxKey bounds a key's text: an event whose key is longer counts under none.
const MaxKey = 32 << 10

// Dimensions names those that keys may have, for messages.
const Dimensions = "uid, ip, ip/24 and the like, api, all and attrs.NAME"

// Dimensions that every event has: the API that it names, and one that is the same for all events.
const (
	dimAPI   = "api"
	dimAll   = "all"
	allValue = "true"
)

// IsDim reports whether keys may have a dimension of this name.
func IsDim(name string) bool {
	switch name {
	case "uid", dimAPI, dimAll:
		return true
	}
	if attr, ok := strings.CutPrefix(name, "attrs."); ok {
		return attr != ""
	}
	_, ok := ParseAddressDim(name)
	return ok
}

// NewDim returns a dimension as the keys of events have it: an address in its one form, an IPv4 one
// also where it is written as an IPv6 one, of ip/24 and the like the network that an address is in, and
// long values as CanonicalUID and CanonicalText have them. An error says what no key has.
func NewDim(name, value string) (Dim, error) {
	if !IsDim(name) {
		if hint := AddressDimHint(name); hint != "" {
			return Dim{}, fmt.Errorf("%.80q is not a dimension: %s", name, hint)
		}
		return Dim{}, fmt.Errorf("%.80q is not a dimension: dimensions are %s", name, Dimensions)
	}
	value, err := dimValue(name, value)
	if err != nil {
		return Dim{}, fmt.Errorf("%.80s: %w", name, err)
	}
	return Dim{Name: name, Value: value}, nil
}

func dimValue(name, value string) (string, error) {
	if value == "" {
		return "", errors.New("it is empty")
	}
	switch name {
	case "uid":
		return CanonicalUID(value), nil
	case dimAPI:
		if api := canonicalAPI(value); api != "" {
			return api, nil
		}
		return "", fmt.Errorf("no API has more than %d bytes, or a control character", MaxAPI)
	case dimAll:
		if value != allValue {
			return "", errors.New("its value is always true, as in all=true")
		}
		return allValue, nil
	}
	if d, ok := ParseAddressDim(name); ok {
		text, ok := d.Append(nil, value)
		if !ok {
			return "", d.wrong(value)
		}
		return string(text), nil
	}
	return CanonicalText(value), nil
}

// canonicalAPI returns an API's name as events have it; "" when none can have it. It allocates only
// when it changes something.
func canonicalAPI(api string) string {
	api = validText(api)
	if len(api) > MaxAPI || strings.ContainsFunc(api, isControl) {
		return ""
	}
	return api
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
