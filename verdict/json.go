package verdict

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/tallygate/tallygate/event"
)

// AppendJSON appends the verdict's wire form: one line of JSON, its keys in a fixed order, so
// that equal verdicts have equal bytes.
func AppendJSON(dst []byte, v *Verdict) []byte {
	dst = append(dst, `{"rule":`...)
	dst = event.AppendString(dst, v.Rule)
	if v.Public != "" {
		dst = append(dst, `,"public":`...)
		dst = event.AppendString(dst, v.Public)
	}
	dst = append(dst, `,"key":{`...)
	for i, d := range v.Key {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = event.AppendString(dst, d.Name)
		dst = append(dst, ':')
		dst = event.AppendString(dst, d.Value)
	}
	dst = append(dst, `},"state":"`...)
	dst = append(dst, v.State.String()...)
	dst = append(dst, `","mode":"`...)
	dst = append(dst, v.Mode.String()...)
	dst = append(dst, `","action":"`...)
	dst = append(dst, v.Action.String()...)
	dst = append(dst, `","apis":[`...)
	for i, api := range v.APIs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = event.AppendString(dst, api)
	}
	dst = append(dst, `],"count":`...)
	dst = v.Count.AppendTo(dst)
	dst = append(dst, `,"limit":`...)
	dst = v.Limit.AppendTo(dst)
	if v.Per != 0 {
		dst = event.Decimal(v.Per).AppendTo(append(dst, `,"per":`...)) // both count millionths
	}
	dst = appendTime(append(dst, `,"since":`...), v.Since)
	dst = appendTime(append(dst, `,"until":`...), v.Until)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendInt(dst, v.Seq, 10)
	if v.Step != "" {
		dst = append(dst, `,"step":`...)
		dst = event.AppendString(dst, v.Step)
	}
	dst = append(dst, `,"cause":{`...)
	if v.Cause.ID != "" {
		dst = append(dst, `"id":`...)
		dst = append(event.AppendString(dst, v.Cause.ID), ',')
	}
	dst = append(dst, `"partition":`...)
	dst = strconv.AppendInt(dst, int64(v.Cause.Partition), 10)
	dst = append(dst, `,"offset":`...)
	dst = strconv.AppendInt(dst, v.Cause.Offset, 10)
	dst = append(dst, '}')
	if !v.Trace.IsZero() {
		dst = append(v.Trace.AppendTo(append(dst, `,"trace":"`...)), '"')
	}
	return append(dst, '}')
}

// MarshalJSON returns the wire form.
func (v Verdict) MarshalJSON() ([]byte, error) { return AppendJSON(nil, &v), nil }

// UnmarshalJSON reads the wire form as Parse does.
func (v *Verdict) UnmarshalJSON(data []byte) (err error) {
	*v, err = Parse(data)
	return err
}

// wire is the form that parseAny reads.
type wire struct {
	Rule   string            `json:"rule"`
	Public string            `json:"public"`
	Key    map[string]string `json:"key"`
	State  *State            `json:"state"`
	Mode   Mode              `json:"mode"`
	Action *Action           `json:"action"`
	APIs   []string          `json:"apis"`
	Count  event.Decimal     `json:"count"`
	Limit  event.Decimal     `json:"limit"`
	Per    event.Decimal     `json:"per"` // seconds
	Since  *event.Micros     `json:"since"`
	Until  *event.Micros     `json:"until"`
	Seq    int64             `json:"seq"`
	Step   string            `json:"step"`
	Cause  struct {
		ID        string `json:"id"`
		Partition int32  `json:"partition"`
		Offset    int64  `json:"offset"`
	} `json:"cause"`
	Trace string `json:"trace"`
}

// Parse reads the wire form. Fields that it doesn't know are ignored; an absent mode is enforce and
// an absent action block. What it returns shares no memory with data, and its key is sorted.
func Parse(data []byte) (Verdict, error) {
	if v, ok := parseKnown(string(data)); ok {
		return v, nil
	}
	return parseAny(data)
}

func parseAny(data []byte) (Verdict, error) {
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		return Verdict{}, fmt.Errorf("verdict: parse: %w", err)
	}
	if err := w.validate(); err != nil {
		return Verdict{}, fmt.Errorf("verdict: parse: %w", err)
	}
	v := Verdict{
		Rule: w.Rule, Public: w.Public, State: *w.State, Mode: w.Mode, Action: ActBlock, APIs: w.APIs,
		Count: w.Count, Limit: w.Limit, Per: event.Micros(w.Per), Since: *w.Since, Until: *w.Until,
		Seq: w.Seq, Step: w.Step, Cause: Cause(w.Cause),
	}
	if w.Action != nil {
		v.Action = *w.Action
	}
	v.Trace, _ = event.ParseTrace(w.Trace) // no verdict is lost for it
	for _, name := range slices.Sorted(maps.Keys(w.Key)) {
		v.Key = append(v.Key, event.Dim{Name: name, Value: w.Key[name]})
	}
	return v, nil
}

func (w *wire) validate() error {
	var errs []error
	if w.Rule == "" {
		errs = append(errs, errors.New("rule is absent"))
	}
	if len(w.Key) == 0 {
		errs = append(errs, errors.New("key is absent"))
	}
	for name, value := range w.Key {
		if name == "" || value == "" {
			errs = append(errs, fmt.Errorf("key has an empty dimension %q", name))
		}
	}
	if w.State == nil {
		errs = append(errs, errors.New("state is absent: want block, clear, warn or left"))
	}
	if w.Since == nil || *w.Since == event.NoTime {
		errs = append(errs, errors.New("since is absent"))
	}
	if w.Until == nil || *w.Until == event.NoTime {
		errs = append(errs, errors.New("until is absent"))
	}
	if w.Per < 0 {
		errs = append(errs, fmt.Errorf("per is %v, below zero", w.Per))
	}
	return errors.Join(errs...)
}

func appendTime(dst []byte, t event.Micros) []byte {
	if t == event.NoTime {
		return append(dst, "null"...)
	}
	return append(t.AppendTo(append(dst, '"')), '"')
}
