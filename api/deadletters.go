package api

// Resent is the answer to POST /v1/dead-letters.
type Resent struct {
	ID      string         `json:"id,omitempty"` // in the audit; absent if nothing was sent
	Records int            `json:"records"`      // records whose letters were sent
	Events  int            `json:"events"`
	Refused int            `json:"refused"`
	Repeats int            `json:"repeats"`
	Letters []ResentLetter `json:"letters"` // in the request's order
}

// ResentLetter is the outcome of one letter: it has one of these.
type ResentLetter struct {
	Sent    *int   `json:"sent,omitempty"`    // how many events
	Refused string `json:"refused,omitempty"` // why it was not sent
	Repeat  int    `json:"repeat,omitempty"`  // the number of the letter that it repeats, from 1
}
