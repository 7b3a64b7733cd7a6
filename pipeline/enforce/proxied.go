package enforce

import "context"

// AdmitProxied asks for a permit for a request that a proxy passes on. It knows no errors: what cannot
// be asked for is Unknown. So is a request whose caller has left: what was granted is given back.
func AdmitProxied(ctx context.Context, a Admitter, r Request) Admission {
	res, err := a.AdmitRequest(ctx, r)
	if err != nil {
		return Admission{Decision: Unknown()}
	}
	if res.Decision.Allowed && ctx.Err() != nil { // nobody may hear the answer, so it is a denial
		if res.Held != nil {
			res.Held.Cancel()
		}
		return Admission{Decision: Unknown()}
	}
	return res
}

// Leaver is a Held whose action may end elsewhere. An admit.Permit is one.
type Leaver interface {
	// Leave ends what this process holds for the request. Its event settles the rest, or the end of
	// its hold.
	Leave()
}

// PassOn ends what is held here for an admitted request that a proxy passes on. With emit it is done,
// and the Admitter emits its event; else the service that the proxy asks for emits one.
func (a *Admission) PassOn(emit bool) {
	if a.Held == nil {
		return
	}
	if emit {
		a.Held.Done("success")
	} else if held, ok := a.Held.(Leaver); ok {
		held.Leave()
	}
}
