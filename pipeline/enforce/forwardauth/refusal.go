package forwardauth

import "fmt"

// Reason is why a request is refused, as in a metric's label.
type Reason string

// The reasons.
const (
	RepeatedHeader  Reason = "repeated_header"  // a header that must have one value has several
	HeadersDisagree Reason = "headers_disagree" // two headers name different requests
	NoDimensions    Reason = "no_dimensions"    // nothing identifies the client, and that is required
	TooMany         Reason = "too_many"         // more descriptors than a rate limit request may have
)

// Refusal is the error of a request that does not say clearly who sent it or what it asks for. It
// is denied: a client may have sent the header that makes it unclear.
type Refusal struct {
	Reason Reason
	Detail string
}

func (r *Refusal) Error() string { return r.Detail }

// RequireDimensions refuses a request that doesn't identify anyone. No verdict could deny it. Most
// often the proxy's configuration and the decision server's name a header differently.
func RequireDimensions() *Refusal {
	return &Refusal{NoDimensions, "Nothing says who sends this request: no uid, no address and no attribute."}
}

// Repeated selects among several values of a header.
type Repeated string

// The choices.
const (
	RefuseRepeated Repeated = "refuse" // none, also "": a client may have added a value
	FirstRepeated  Repeated = "first"  // for proxies that put their value first
	LastRepeated   Repeated = "last"   // for proxies that put their value last
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
