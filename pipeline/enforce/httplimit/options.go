package httplimit

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// Options configures Middleware. At least one of UID, IP and Attrs is required. None has a default:
// a header that clients can set does not identify them.
type Options struct {
	// UID returns the user, as your authentication found it; "" is unknown. Header, Cookie and
	// ContextValue make such functions.
	UID func(*http.Request) string
	// IP returns the client's address, without a port; "" is unknown. ClientIP makes such a
	// function.
	IP func(*http.Request) string
	// Attrs returns attributes by name, for rules whose key has attrs.NAME; "" is absent. The names
	// status and latency_ms are refused: the gate adds these attributes to events itself.
	Attrs map[string]func(*http.Request) string
	// API names what the request does, such as order.create; nil is RouteAPI. It is called at most
	// once, before the next handler, and both the check and the event use its result. Without
	// Events it is called only for keys that have a verdict, and while any verdict is on a key of an API.
	API func(*http.Request) string

	// Skip, if set, tells which requests are let in as if there were no middleware: they are neither checked
	// nor emitted, and ask for no permit. PathIn makes such a function, for /healthz and the like.
	Skip func(*http.Request) bool

	// Answers configures responses to denied requests.
	Answers enforce.Answers
	// Denied responds to denied requests; nil is Answers.Write. Answers.PublicName is the rule's
	// name that callers may see.
	Denied func(http.ResponseWriter, *http.Request, enforce.Decision)
	// Challenge responds to requests whose verdict's action is challenge; nil is Denied.
	Challenge func(http.ResponseWriter, *http.Request, enforce.Decision)
	// Refused responds to requests for which one of these functions returned Ambiguous; nil is
	// enforce.WriteRefused.
	Refused func(http.ResponseWriter, *http.Request)
	// Logged is called for requests that are allowed by a verdict whose action is log; nil is no
	// call.
	Logged func(*http.Request, enforce.Decision)
	// MaxDelay bounds a request's wait for its turn, if its verdict's action is throttle: for the verdict's end, and
	// then behind those who came earlier, at the limit's rate. 0 is 1 s, and a negative value never waits. A request
	// whose turn would come later is denied at once.
	MaxDelay time.Duration
	// MaxDelayed bounds the requests that wait at once; 0 is 1,000. More are denied.
	MaxDelayed int
	// MaxDelayedPerKey bounds those of one key and rule; 0 is 100.
	MaxDelayedPerKey int

	// Admit, if set, is asked for each request that no verdict denies: an admit.Admitter, for rules with
	// `strict` and `scope: instance`. API is then called for each request, unless no rule asks. The
	// permit is in the request's event, and for handlers that emit their own in PermitOf. It is
	// cancelled when Event drops the event. A handler that panics has failed, and nobody knows what it
	// did: its permit stays, in its event, or to be counted as lost.
	Admit enforce.Admitter
	// Reserve returns how much the request may use at most: the numbers that strict rules sum, and its cost. Its
	// permits are for that. The event has the same, unless the handler notes less by enforce.Note: then the rest is
	// free again. It is called once, before the next handler, and only with Admit or Events; nil is a cost of 1.
	Reserve func(*http.Request) enforce.Reservation
	// PermitHeader takes a request's permit from the header event.PermitHeader, and asks for no other.
	// Set it only behind a proxy that asks for permits and replaces the header of clients: they could
	// otherwise bring a permit of their own, and no strict limit would be asked.
	PermitHeader bool

	// Logger is told once of what looks like a mistake in these options: see GateStats. nil is
	// slog.Default().
	Logger *slog.Logger

	// Events, if set, gets an event for each allowed request after its response: who, what, the
	// outcome of OutcomeOf, and the attributes status and latency_ms. An emit.Emitter is one. Handlers add
	// to it by enforce.Note.
	Events Emitter
	// NoteHeader reads what responses note for their events by the header enforce.NoteHeader, as handlers do
	// with enforce.Note, and takes it out of the response. Set it where the next handler is a reverse proxy to
	// servers of your own. The header of a request means nothing.
	NoteHeader bool
	// Trace gives events the trace context of their requests: the header traceparent, if it says that the
	// trace is sampled. Set it where your own proxy or gateway decides what is sampled. Beside it
	// emit.Config.TracesPerSecond says how many are sent.
	Trace bool
	// EmitDenied emits an event for each request that is denied here, with the outcome limited. Rules count these
	// events only where they name that outcome; to others they tell which limit the caller has now. For that some
	// of them suffice, and are emitted also without EmitDenied: see enforce.Denials.
	EmitDenied bool
	// Event may complete or change an event before it is emitted; nil changes nothing. It returns
	// false to drop the event.
	Event func(*http.Request, *event.Event) bool
}

// Emitter sends events. Emit must not block.
type Emitter interface {
	Emit(event.Event) bool
}

const (
	dimUID = "uid"
	dimIP  = "ip"

	maxDims = 16 // of a request
)

// Attributes that a gate adds to events.
const (
	attrStatus  = "status"
	attrLatency = "latency_ms"
)

func (o *Options) setDefaults() {
	if o.API == nil {
		o.API = RouteAPI
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Refused == nil {
		o.Refused = enforce.WriteRefused
	}
}

func (o *Options) door() DoorOptions {
	return DoorOptions{
		Answers: o.Answers, Admit: o.Admit, Events: o.Events, EmitDenied: o.EmitDenied,
		Throttle: enforce.ThrottleConfig{MaxDelay: o.MaxDelay, MaxDelayed: o.MaxDelayed, MaxDelayedPerKey: o.MaxDelayedPerKey},
	}
}

func (o *Options) validate() error {
	var errs []error
	if o.UID == nil && o.IP == nil && len(o.Attrs) == 0 {
		errs = append(errs, errors.New("httplimit: at least one of Options.UID, IP and Attrs is needed"))
	}
	if len(o.Attrs) > maxDims-2 {
		errs = append(errs, fmt.Errorf("httplimit: Options.Attrs has %d, want at most %d", len(o.Attrs), maxDims-2))
	}
	for name, of := range o.Attrs {
		if of == nil || name == "" {
			errs = append(errs, fmt.Errorf("httplimit: Options.Attrs[%q] needs a name and a function", name))
		}
		if name == attrStatus || name == attrLatency {
			errs = append(errs, fmt.Errorf("httplimit: Options.Attrs[%q]: the gate adds this attribute to its events itself: choose another name", name))
		}
	}
	return errors.Join(errs...)
}
