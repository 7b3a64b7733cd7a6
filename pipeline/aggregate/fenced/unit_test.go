package fenced

import (
	"strings"
	"testing"
	"time"
)

func TestBatchesAreCutBehindUrgentRecords(t *testing.T) {
	for _, tc := range []struct {
		queued string // b: bulk, u: urgent; each of a quarter of a batch
		want   string
	}{
		{"bbbbbbbbb", "bbbb bbbb b"},
		{"u", "U"},
		{"bbubbb", "bbU bbb"},
		{"uubub", "uubU b"},
		{"bbbbub", "bbbb U b"},
	} {
		w := (&Identity{cfg: Config{BatchBytes: 400, QueueBytes: 1 << 20}}).NewWriter("t", 0)
		for _, k := range tc.queued {
			r := Record{Key: make([]byte, 100-recordOverhead)}
			if err := w.Append(t.Context(), r, k == 'u', nil); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for {
			batch, urgent, _ := w.nextBatch(w.id.cfg.BatchBytes)
			if len(batch) == 0 {
				break
			}
			s := ""
			for _, e := range batch {
				s += map[bool]string{false: "b", true: "u"}[e.urgent]
			}
			if urgent { // marked on the record that it was cut behind
				s = s[:len(s)-1] + strings.ToUpper(s[len(s)-1:])
			}
			got = append(got, s)
			w.finish(batch, ack{}, nil)
		}
		if s := strings.Join(got, " "); s != tc.want {
			t.Errorf("%s went as %s, want %s", tc.queued, s, tc.want)
		}
	}
}

func TestFenceRecordsAreRead(t *testing.T) {
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	r, err := fenceRecord("g-3", stamp{42, 7}, at)
	if err != nil {
		t.Fatal(err)
	}
	if string(r.Key) != "\x00fence/42" || !IsFence(r.Key) {
		t.Errorf("its key is %q", r.Key)
	}
	f, err := ParseFence(r.Value)
	if want := (FenceRecord{"g-3", 42, 7, at}); err != nil || f != want {
		t.Fatalf("%+v, %v", f, err)
	}
	for _, bad := range []string{"", "{}", `{"pid":1}`, `{"epoch":1}`, `{"pid":-1,"epoch":0}`, "[]"} {
		if _, err := ParseFence([]byte(bad)); err == nil {
			t.Errorf("%q was taken for a fence record", bad)
		}
	}
}

func TestOwnerRecordsBeginWithNUL(t *testing.T) {
	for key, want := range map[string]bool{"\x00fence/7": true, "\x00checkpoint": true, "\x00": true, "": false, "uid=1": false} {
		if IsOwnerRecord([]byte(key)) != want {
			t.Errorf("%q: %v", key, !want)
		}
	}
}

func TestAWrongConfigSaysAllThatIsWrong(t *testing.T) {
	_, err := Acquire(t.Context(), Config{BatchBytes: -1, HeartbeatEvery: -1})
	for _, want := range []string{"TransactionalID", "Urgent", "BatchBytes", "HeartbeatEvery"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}
