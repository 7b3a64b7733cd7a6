package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/tallygate/tallygate/api"
)

// Problem is shown instead of a page, or above a form: the trouble, its place, and the remedy.
type Problem struct {
	Status int    // of HTTP; 0 is 500
	Title  string // "No such rule"
	Detail string // what was said, and by whom
	Do     string // what the reader can do about it
	Link   string // where to look further; "": nowhere
}

// Error says all of it.
func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

// problemOf turns an error into what people read.
func problemOf(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if refused, ok := errors.AsType[*api.Refusal](err); ok {
		return ofRefusal(refused)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Problem{Status: http.StatusGatewayTimeout, Title: "The aggregator does not answer in time", Detail: err.Error(),
			Do: "Look at the overview, which says what is slow, and try again.", Link: "/"}
	}
	if _, ok := errors.AsType[*url.Error](err); ok {
		return &Problem{Status: http.StatusBadGateway, Title: "The aggregator cannot be reached", Detail: err.Error(),
			Do: "The overview says which aggregators answer. Check --aggregator of the console, and the network.", Link: "/"}
	}
	return &Problem{Status: http.StatusInternalServerError, Title: "This page cannot be shown", Detail: err.Error(),
		Do: "Try again. If it stays so, the console's log and the overview say more.", Link: "/"}
}

func ofRefusal(refused *api.Refusal) *Problem {
	p := &Problem{Status: refused.Status, Title: "The aggregator refuses this", Detail: refused.Detail}
	switch refused.Status {
	case http.StatusUnauthorized:
		p.Title, p.Do = "The aggregator does not know you", "Log out and in again. If it stays so, the token is not in the aggregators' --tokens file."
	case http.StatusForbidden:
		p.Title, p.Do = "Your role is not sufficient", "Ask somebody with the role, or whoever gives roles."
	case http.StatusNotFound:
		p.Title, p.Do = "There is no such thing", "Check how it is written. An aggregator of an older version lacks some of the pages' questions."
	case http.StatusUnprocessableEntity, http.StatusBadRequest:
		p.Title, p.Do = "This is not valid", "Correct it and send it again."
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		p.Title, p.Do = "The aggregator is not able to do this now", "Wait a few seconds and try again. The overview says whether a partition has no owner."
	case http.StatusInternalServerError, http.StatusBadGateway:
		p.Status, p.Do = http.StatusBadGateway, "The aggregators' logs say more; the cluster page has their last errors."
	}
	return p
}
