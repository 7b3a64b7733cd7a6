package forwardauth

import "fmt"

// Reason is why a question is refused, as a metric's label has it.
type Reason string

// The reasons.
const (
	RepeatedHeader  Reason = "repeated_header"  // a header that is to have one value has several
	HeadersDisagree Reason = "headers_disagree" // two headers name different requests
	NoDimensions    Reason = "no_dimensions"    // nothing says who asks, though that is required
)

// Refusal is a question that has no answer, since it is not clear who asks or for what. The request is denied: a client may have sent the
// header that makes it unclear.
type Refusal struct {
	Reason Reason
	Detail string
}

func (r *Refusal) Error() string { return r.Detail }

// RequireDimensions refuses a question that says nothing of who asks. No verdict could deny it: most often a header is named otherwise in the
// proxy's configuration than in that of the decision server.
func RequireDimensions() *Refusal {
	return &Refusal{NoDimensions, "Nothing says who sends this request: no uid, no address and no attribute."}
}

// Repeated says which of several values of one header counts.
type Repeated string

// The choices.
const (
	RefuseRepeated Repeated = "refuse" // none, also "": the question is refused, since a client may have added a value of its own
	FirstRepeated  Repeated = "first"  // for proxies that put their value in front of what clients send
	LastRepeated   Repeated = "last"   // for proxies that put their value behind it
)

func (r Repeated) validate() error {
	switch r {
	case "", RefuseRepeated, FirstRepeated, LastRepeated:
		return nil
	}
	return fmt.Errorf("forwardauth: of repeated headers %q counts; want refuse, first or last", string(r))
}

// pick returns the one value of a header; "" when there is none.
func (r Repeated) pick(name string, values []string) (string, error) {
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) == 1, r == FirstRepeated:
		return values[0], nil
	case r == LastRepeated:
		return values[len(values)-1], nil
	}
	return "", &Refusal{RepeatedHeader, fmt.Sprintf("The header %s has %d values, and only one may say who sends this request or what it asks for.", name, len(values))}
}
