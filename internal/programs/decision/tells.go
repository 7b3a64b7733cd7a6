package decision

import (
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/limits"
)

// tells emits some of the requests that proxies are told to deny, as a middleware does: the rules learn from them which
// limit a key has now, and nobody else could tell. What a program asks by /v1/check and /v1/admit it emits itself.
func (s *Server) tells(api string, dims []event.Dim) {
	if s.cfg.Denied == nil || api == "" || !s.denials.Emits(api, dims) {
		return
	}
	e := limits.Event(nil, api, dims, 0)
	e.Outcome, e.Time = event.OutcomeLimited, event.FromTime(time.Now())
	s.cfg.Denied.Emit(e)
}
