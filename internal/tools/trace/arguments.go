package trace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/accesslog"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/verdict"
)

// arguments sorts what is not an option: an event's JSON, inputs, and FIELD=VALUE.
func (o *options) arguments(args []string) error {
	var errs []error
	for _, arg := range args {
		switch {
		case strings.HasPrefix(strings.TrimSpace(arg), "{"):
			if o.event != "" {
				errs = append(errs, errors.New("one event is given on the command line; several are a file, one a line"))
			}
			o.event = arg
		case isFilter(arg):
			field, err := newField(arg)
			if err != nil {
				errs = append(errs, err)
			}
			o.filter = append(o.filter, field)
		default:
			o.names = append(o.names, arg)
		}
	}
	switch {
	case o.topic != "" && (o.event != "" || len(o.names) > 0):
		errs = append(errs, errors.New("--follow reads the event topic: leave events and files out"))
	case o.event != "" && len(o.names) > 0:
		errs = append(errs, errors.New("either an event, or files"))
	case o.topic == "" && o.event == "":
		errs = append(errs, checkInputs(o.names))
	}
	return errors.Join(errs...)
}

func checkInputs(names []string) error {
	if len(names) == 0 {
		return errors.New(`what to trace? An event, such as '{"uid": "42", "api": "login"}', a file, - for standard input, kafka:TOPIC, or --follow`)
	}
	return replay.CheckInputs(names, "trace")
}

func (o *options) source(ctx context.Context, stdin io.Reader) (replay.Source, error) {
	switch {
	case o.topic != "":
		return replay.Follow(ctx, o.kafka, o.topic)
	case o.event != "":
		return replay.Files([]string{"-"}, strings.NewReader(oneLine(o.event)), accesslog.Lines{Format: accesslog.NDJSON, Warn: o.lines.Warn})
	}
	return replay.Open(ctx, o.kafka, o.names, stdin, o.lines)
}

// oneLine makes one line of JSON that was written in several. In its strings there are no line breaks.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, text)
}

// filter selects events: those that have all of the fields.
type filter []field

type field struct{ name, value string }

func (f filter) String() string {
	parts := make([]string, len(f))
	for i, one := range f {
		parts[i] = one.name + "=" + one.value
	}
	return strings.Join(parts, " ")
}

// isFilter reports whether an argument is FIELD=VALUE rather than the name of a file.
func isFilter(arg string) bool {
	name, _, ok := strings.Cut(arg, "=")
	return ok && !strings.ContainsAny(name, "/:")
}

func newField(arg string) (f field, err error) {
	f.name, f.value, _ = strings.Cut(arg, "=")
	switch f.name {
	case "api", "outcome", "id":
	case "ip":
		addr, ok := event.ParseAddress(f.value)
		if !ok {
			return f, fmt.Errorf("%s: want an address", arg)
		}
		f.value = addr.String()
	case "uid":
		f.value = event.CanonicalUID(f.value)
	default:
		if attr, ok := strings.CutPrefix(f.name, "attrs."); !ok || attr == "" {
			return f, fmt.Errorf("%q is no field of events: uid, api, outcome, id, ip and attrs.NAME are", f.name)
		}
	}
	return f, nil
}

func (f filter) matches(e *event.Event) bool {
	for _, one := range f {
		if !one.matches(e) {
			return false
		}
	}
	return true
}

func (f field) matches(e *event.Event) bool {
	switch f.name {
	case "api":
		return verdict.MatchAPI(f.value, e.API)
	case "outcome":
		return e.Outcome == f.value
	case "id":
		return e.ID == f.value
	case "ip":
		return e.IP.IsValid() && e.IP.String() == f.value
	case "uid":
		return e.UID == f.value
	}
	v, _ := e.Attr(strings.TrimPrefix(f.name, "attrs."))
	return v.Text == f.value
}
