package admit

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// What another process carries out is given back here at once, and in Redis by its event or its hold.
func TestWhatIsLeftToAnotherProcess(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.rules(1, twoRules)
		a := r.admitter()
		for i := range 3 {
			p := r.admit(a, uid("here", "42"))
			if !p.Admitted {
				t.Fatalf("%d under this process' own limit: %+v", i, p)
			}
			p.Leave()
		}
		for api, limit := range map[string]int{"export": 2, "sms.send": 5} {
			for i := range limit + 1 {
				p := r.admit(a, uid(api, "42"))
				if p.Admitted != (i < limit) {
					t.Fatalf("%d under the limit of %s: %+v", i, api, p)
				}
				p.Leave()
				p.Done("success")
				p.Cancel()
			}
		}
		if s := a.Stats(); s.Cancelled > 0 || s.CancelsWaiting > 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A request that still ran when the Guard was closed kept its permit until its hold was over, and nobody said
// so.
func TestAPermitThatEndsBehindTheAdmitter(t *testing.T) {
	r := newRig(t, miniredis.RunT(t).Addr())
	r.rules(1, twoRules)
	var log bytes.Buffer
	a, err := New(Config{Redis: r.client, Prefix: r.prefix, Poll: 20 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = a.Run(ctx) }()
	if err := a.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	early, late := r.admit(a, uid("export", "42")), r.admit(a, uid("export", "42"))
	early.Done("success")
	stop()
	<-done
	if s := a.Stats(); s.Cancelled != 1 || s.CancelsLost != 0 || log.Len() > 0 {
		t.Errorf("%+v\n%s", s, log.String())
	}
	late.Done("success")
	late.Done("success")
	if s := a.Stats(); s.CancelsLost != 1 || s.CancelsWaiting != 0 || strings.Count(log.String(), "behind the end") != 1 {
		t.Errorf("%+v\n%s", s, log.String())
	}
}
