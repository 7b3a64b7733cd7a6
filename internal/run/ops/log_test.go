package ops_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/logline"
)

type secretive struct{}

func (secretive) LogValue() slog.Value { return slog.DurationValue(time.Minute) }

func logger(t interface{ Fatal(...any) }, out *bytes.Buffer, format string) *slog.Logger {
	log, err := ops.NewLogger(out, "debug", format)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// TestLogSchema: whatever a caller writes, a line has the schema.
func TestLogSchema(t *testing.T) {
	failed := errors.Join(errors.New("rules.yaml:1:1: unknown field\n    versio: 1\n    ^"), errors.New("no apiVersion"))
	at := time.Date(2026, 11, 22, 7, 0, 0, 0, time.FixedZone("CET", 3600))
	for about, c := range map[string]struct {
		write func(*slog.Logger)
		want  string // behind msg
	}{
		"a time span":             {func(l *slog.Logger) { l.Info("m", "took", 1500*time.Millisecond) }, `"took_seconds":1.5`},
		"one that is named so":    {func(l *slog.Logger) { l.Info("m", "took_seconds", 2*time.Second) }, `"took_seconds":2`},
		"one behind a LogValuer":  {func(l *slog.Logger) { l.Info("m", "took", secretive{}) }, `"took_seconds":60`},
		"text called seconds":     {func(l *slog.Logger) { l.Info("m", "took_seconds", "long") }, `"took":"long"`},
		"err":                     {func(l *slog.Logger) { l.Info("m", "err", "it is away") }, `"error":"it is away"`},
		"an error by any name":    {func(l *slog.Logger) { l.Info("m", "reason", errors.New("away")) }, `"error":"away"`},
		"two errors":              {func(l *slog.Logger) { l.Info("m", "err", errors.New("a"), "error", errors.New("b")) }, `"error":"a; b"`},
		"no error":                {func(l *slog.Logger) { l.Info("m", "err", nil, "error", error(nil)) }, ``},
		"lines":                   {func(l *slog.Logger) { l.Info("m", "err", failed) }, `"error":"rules.yaml:1:1: unknown field; versio: 1; no apiVersion"`},
		"a name twice":            {func(l *slog.Logger) { l.With("partition", 1).Info("m", "partition", 2, "partition", 3) }, `"partition":3`},
		"twice in With":           {func(l *slog.Logger) { l.With("by", "a").With("by", "b").Info("m") }, `"by":"b"`},
		"a group":                 {func(l *slog.Logger) { l.WithGroup("a").With("b", 1).Info("m", slog.Group("c", "d", time.Second)) }, `"a_b":1,"a_c_d_seconds":1`},
		"a name of the beginning": {func(l *slog.Logger) { l.Info("m", "msg", "x", "time", 1, "level", 2) }, `"attr_msg":"x","attr_time":1,"attr_level":2`},
		"a name of words":         {func(l *slog.Logger) { l.Info("m", "Tried again", true) }, `"tried_again":true`},
		"no number":               {func(l *slog.Logger) { l.Info("m", "share", math.NaN(), "n", 1.5) }, `"n":1.5`},
		"a time":                  {func(l *slog.Logger) { l.Info("m", "since", at) }, `"since":"2026-11-22T06:00:00Z"`},
		"a list":                  {func(l *slog.Logger) { l.Info("m", "kafka", []string{"a:1", "b:2"}) }, `"kafka":["a:1","b:2"]`},
		"anything else":           {func(l *slog.Logger) { l.Info("m", "x", struct{ A, B int }{1, 2}) }, `"x":"{1 2}"`},
	} {
		var out bytes.Buffer
		c.write(logger(t, &out, "json"))
		_, got, _ := strings.Cut(strings.TrimSuffix(out.String(), "}\n"), `"msg":"m"`)
		if strings.TrimPrefix(got, ",") != c.want {
			t.Errorf("%s:\n got %s\nwant %s", about, got, c.want)
		}
		if err := logline.Check(out.Bytes()); err != nil {
			t.Errorf("%s: %v", about, err)
		}
	}
}

// TestLogTextIsBounded, since what collects logs cuts long lines in two.
func TestLogTextIsBounded(t *testing.T) {
	var out bytes.Buffer
	logger(t, &out, "json").Error("m", "error", errors.New(strings.Repeat("ä", 1<<20)))
	if out.Len() > 5<<10 || !strings.Contains(out.String(), "bytes more)") {
		t.Errorf("%d bytes", out.Len())
	}
	if err := logline.Check(out.Bytes()); err != nil {
		t.Error(err)
	}
}

// TestLogAnything: attributes drawn at random, in groups and before them.
func TestLogAnything(t *testing.T) {
	names := rapid.SampledFrom([]string{"err", "error", "took", "took_seconds", "partition", "a b", "", "time", "msg", "level", "É"})
	values := rapid.Custom(func(t *rapid.T) any {
		return rapid.SampledFrom([]any{nil, 1, int64(-1), uint64(math.MaxUint64), 0.5, math.Inf(1), true, "text", "two\nlines", "\xff", time.Second, time.Now(),
			errors.New("an\nerror"), []string{"a\nb"}, []int{1}, struct{}{}, secretive{}, slog.GroupValue(slog.Int("err", 1)), (*ops.UsageError)(nil)}).Draw(t, "value")
	})
	rapid.Check(t, func(t *rapid.T) {
		var out bytes.Buffer
		log := logger(t, &out, "json")
		for range rapid.IntRange(0, 3).Draw(t, "before") {
			if rapid.Bool().Draw(t, "group") {
				log = log.WithGroup(names.Draw(t, "group's name"))
			} else {
				log = log.With(names.Draw(t, "name"), values.Draw(t, "value"))
			}
		}
		var args []any
		for range rapid.IntRange(0, 5).Draw(t, "attributes") {
			args = append(args, names.Draw(t, "name"), values.Draw(t, "value"))
		}
		log.Info(fmt.Sprint("m", len(args)), args...)
		if err := logline.Check(out.Bytes()); err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
	})
}

func TestNewLogger(t *testing.T) {
	var out strings.Builder
	log, err := ops.NewLogger(&out, "warn", "json")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("not told")
	log.Warn("told", slog.Int("n", 1))
	if got := out.String(); strings.Contains(got, "not told") || !strings.Contains(got, `"msg":"told","n":1`) {
		t.Errorf("%s", got)
	}
	for _, wrong := range [][2]string{{"loud", "json"}, {"info", "xml"}} {
		if _, err := ops.NewLogger(io.Discard, wrong[0], wrong[1]); err == nil {
			t.Errorf("%v is accepted", wrong)
		}
	}
}
