package admit

import "testing"

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
