package replay

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/accesslog"
	"github.com/tallygate/tallygate/internal/tools/engine"
	"github.com/tallygate/tallygate/internal/tools/engine/enginetest"
	"github.com/tallygate/tallygate/verdict"
)

func TestSentences(t *testing.T) {
	t.Run("In a file to replay, broker_time may be given; absent, it is the event's own", func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "events.ndjson")
		const text = `{"api":"home","uid":"u1","time":"2026-11-21T10:00:00Z","broker_time":"2026-11-21T10:30:00Z"}
{"api":"home","uid":"u1","time":"2026-11-21T10:00:00Z","broker_time":"2026-11-21T11:00:00.000001Z"}
{"api":"home","uid":"u1","time":"2026-11-21T10:00:00Z","broker_time":"2026-11-21T09:00:00Z"}
{"api":"home","uid":"u1","time":"2026-11-21T10:00:00Z"}
`
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		src, err := Files([]string{name}, nil, accesslog.Lines{Format: accesslog.NDJSON})
		if err != nil {
			t.Fatal(err)
		}
		e := engine.New(enginetest.Set(t))
		var got []string
		var out engine.Outcome
		for range 4 {
			rec, err := src.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if e.Apply(&rec.Event, rec.Broker, rec.Cause, &out); out.TooOld {
				got = append(got, "too old")
			} else {
				got = append(got, out.At.String())
			}
		}
		want := []string{"2026-11-21T10:00:00Z", "too old", "2026-11-21T09:00:00Z", "2026-11-21T10:00:00Z"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the events' times (- want)\n%s", diff)
		}
	})
	t.Run("The whole sequence is the same in replay", func(t *testing.T) {
		events := enginetest.Traffic(7, 2000)
		sequence := func() (all []verdict.Verdict) {
			e, out := engine.New(enginetest.Set(t)), engine.Outcome{}
			for i := range events {
				e.Apply(&events[i], event.NoTime, verdict.Cause{Offset: int64(i)}, &out)
				for _, v := range out.Changes {
					v.Key, v.APIs = append([]event.Dim(nil), v.Key...), append([]string(nil), v.APIs...)
					all = append(all, v)
				}
			}
			return all
		}
		first := sequence()
		if diff := cmp.Diff(first, sequence()); diff != "" || len(first) < 20 {
			t.Errorf("%d verdicts (- once, + again)\n%s", len(first), diff)
		}
	})
}
