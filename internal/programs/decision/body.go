package decision

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/tallygate/tallygate/internal/base/httpjson"
)

// maxBody bounds a request's body, in bytes.
const maxBody = 1 << 20

// read takes the JSON body, or answers what is wrong with it.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil {
		if _, more := dec.Token(); more == nil {
			err = errors.New("there is more than one JSON value")
		} else if !errors.Is(more, io.EOF) {
			err = more
		}
	}
	if err == nil {
		return true
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		httpjson.Problem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body: at most %d bytes are allowed", maxBody))
		return false
	}
	httpjson.Problem(w, http.StatusBadRequest, "the body: "+mistake(err))
	return false
}

// mistake is a decoding error in the words of JSON instead of Go's.
func mistake(err error) string {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("invalid JSON at byte %d: %v", e.Offset, e)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := cmp.Or(e.Field, "the whole")
		return fmt.Sprintf("%s: a JSON %s is not allowed here", field, e.Value)
	}
	switch {
	case errors.Is(err, io.EOF):
		return "it is empty"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the JSON ends too early"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}
