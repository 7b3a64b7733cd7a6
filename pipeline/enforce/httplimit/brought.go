package httplimit

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/tallygate/tallygate/event"
)

// Brought reads the permits that requests bring from a proxy. The zero value is ready, and its methods
// may be called by many goroutines. It is for adapters of routers and protocols.
type Brought struct{ none sync.Once }

// Permit returns the permit of a request, by all values that it has of the header event.PermitHeader.
// What is no permit is ignored, and logged once: the proxy does not replace what clients send.
func (b *Brought) Permit(values ...string) event.Permit {
	if len(values) == 0 {
		return event.Permit{}
	}
	p, err := event.ParsePermit(values[0])
	if len(values) > 1 {
		p, err = event.Permit{}, errors.New("the header is there more than once")
	}
	if err != nil {
		b.none.Do(func() {
			slog.Warn("a request brings a permit that is none, and it is ignored; further ones are not logged: make the proxy replace the header that clients send",
				"header", event.PermitHeader, "error", err)
		})
	}
	return p
}
