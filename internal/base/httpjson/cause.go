package httpjson

import (
	"errors"
	"net/url"
)

// Cause is an http.Client's error without the address that it names: that has what was asked for, such as a key, and
// may have a credential. Any other error is returned as it is.
func Cause(err error) error {
	if at, ok := errors.AsType[*url.Error](err); ok {
		return at.Err
	}
	return err
}
