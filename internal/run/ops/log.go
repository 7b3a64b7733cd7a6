package ops

import (
	"context"
	"encoding"
	"fmt"
	"io"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tallygate/tallygate/api"
)

// LogOptions are the options of the log.
type LogOptions struct {
	of            *Options
	level, format string
}

// Log adds the log's options.
func (o *Options) Log() *LogOptions {
	l := &LogOptions{of: o}
	o.StringVar(&l.level, "log-level", "info", "`level`: debug, info, warn or error")
	o.StringVar(&l.format, "log-format", "json", "`format`: json or text")
	return l
}

// Build makes the logger. What reads files that the options name complains to it, too.
func (l *LogOptions) Build(out io.Writer) (*slog.Logger, error) {
	log, err := NewLogger(out, l.level, l.format)
	l.of.log.Store(log)
	return log, err
}

// Logger is the program's logger; nil if it has none, or none yet.
func (o *Options) Logger() *slog.Logger { return o.log.Load() }

// NewLogger makes a logger from what --log-level and --log-format say. Its lines have the log's
// schema, whoever writes them.
func NewLogger(out io.Writer, level, format string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: least}
	switch format {
	case "json":
		return slog.New(newSchema(slog.NewJSONHandler(out, opts))), nil
	case "text":
		return slog.New(newSchema(slog.NewTextHandler(out, opts))), nil
	}
	return nil, fmt.Errorf("--log-format %q: json or text", format)
}

// schema is a handler that gives every line the log's schema (docs/reference/metrics.md), whatever a caller
// or a library writes:
//
//   - A line is flat. Names consist of small letters, digits and _, and no name is there twice: the
//     last value counts.
//   - A time span is a number of seconds, and its name ends in _seconds.
//   - An error is text in one line, and its name is error. Several are joined.
//   - Other values are text, numbers, true or false, and lists of text. Text is one line of at most
//     maxLogText bytes.
//
// It gathers attributes itself: package slog writes a name as often as it is given.
type schema struct {
	out    slog.Handler
	group  string      // what names begin with
	before []slog.Attr // those of With, in the schema already
	memory *memory     // shared by all that With makes
}

func newSchema(out slog.Handler) *schema {
	return &schema{out: out, memory: &memory{lines: map[remembered]*api.LoggedError{}}}
}

// maxLogText bounds a text, in bytes: what collects logs cuts a line in two at 16 KiB.
const maxLogText = 4 << 10

func (s *schema) Enabled(ctx context.Context, level slog.Level) bool {
	return remembers(level) || s.out.Enabled(ctx, level)
}

func (s *schema) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *s
	l := line{attrs: append([]slog.Attr(nil), s.before...)}
	for _, a := range attrs {
		l.add(s.group, a)
	}
	next.before = l.attrs
	return &next
}

func (s *schema) WithGroup(name string) slog.Handler {
	next := *s
	next.group += name + "_"
	return &next
}

func (s *schema) Handle(ctx context.Context, r slog.Record) error {
	l := line{attrs: append(make([]slog.Attr, 0, len(s.before)+r.NumAttrs()), s.before...)}
	r.Attrs(func(a slog.Attr) bool {
		l.add(s.group, a)
		return true
	})
	out := slog.NewRecord(r.Time.UTC(), r.Level, oneLine(r.Message), 0)
	out.AddAttrs(l.attrs...)
	return s.writeOr(ctx, &out)
}

// line is the attributes of a line.
type line struct{ attrs []slog.Attr }

// add adds an attribute, a group as what is in it.
func (l *line) add(prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "_"
		}
		for _, inner := range v.Group() {
			l.add(prefix, inner)
		}
		return
	}
	name, v, ok := inSchema(prefix+a.Key, v)
	if !ok {
		return
	}
	if name == "error" && v.Kind() != slog.KindString {
		v = slog.StringValue(oneLine(v.String()))
	}
	for i := range l.attrs {
		if l.attrs[i].Key != name {
			continue
		}
		if was := l.attrs[i].Value.String(); name == "error" && was != v.String() {
			v = slog.StringValue(clipped(was + "; " + v.String()))
		}
		l.attrs[i].Value = v
		return
	}
	l.attrs = append(l.attrs, slog.Attr{Key: name, Value: v})
}

const seconds = "_seconds"

// inSchema returns what a line has for an attribute; ok is false when it has nothing to say.
func inSchema(name string, v slog.Value) (string, slog.Value, bool) {
	name = snake(name)
	switch v.Kind() {
	case slog.KindDuration:
		return strings.TrimSuffix(name, seconds) + seconds, slog.Float64Value(math.Round(v.Duration().Seconds()*1e6) / 1e6), true
	case slog.KindInt64, slog.KindUint64:
		return name, v, true
	case slog.KindFloat64:
		// JSON has no number for these.
		return name, v, !math.IsNaN(v.Float64()) && !math.IsInf(v.Float64(), 0)
	}
	if text := strings.TrimSuffix(name, seconds); text != name { // it is no number
		name = snake(text)
	}
	switch v.Kind() {
	case slog.KindBool:
		return name, v, true
	case slog.KindTime:
		return name, slog.StringValue(v.Time().UTC().Format(time.RFC3339Nano)), true
	case slog.KindString:
		return name, slog.StringValue(oneLine(v.String())), v.String() != ""
	}
	return anyInSchema(name, v.Any())
}

func anyInSchema(name string, v any) (string, slog.Value, bool) {
	if r := reflect.ValueOf(v); !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil() {
		return name, slog.Value{}, false
	}
	switch v := v.(type) {
	case error:
		text := oneLine(v.Error())
		return "error", slog.StringValue(text), text != ""
	case []string:
		lines := make([]string, len(v))
		for i := range v {
			lines[i] = oneLine(v[i])
		}
		return name, slog.AnyValue(lines), true
	case encoding.TextMarshaler:
		if text, err := v.MarshalText(); err == nil {
			return name, slog.StringValue(oneLine(string(text))), true
		}
	}
	return name, slog.StringValue(oneLine(fmt.Sprint(v))), true
}

// snake returns a name of small letters, digits and _, that is none of those that begin every line.
func snake(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '_'
	}, name)
	switch name {
	case "err":
		return "error"
	case "time", "level", "msg", "":
		return "attr_" + name
	}
	return name
}

// oneLine joins lines. Those that say nothing, such as the caret below a mistake, are left out.
func oneLine(text string) string {
	if !strings.ContainsAny(text, "\r\n") {
		return clipped(text)
	}
	var said []string
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if part = strings.TrimSpace(part); strings.Trim(part, "^~ \t") != "" {
			said = append(said, part)
		}
	}
	return clipped(strings.Join(said, "; "))
}

func clipped(text string) string {
	if len(text) <= maxLogText {
		return text
	}
	end := maxLogText
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s … (%d bytes more)", text[:end], len(text)-end)
}
