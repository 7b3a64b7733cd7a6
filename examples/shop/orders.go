package main

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/tallygate/tallygate/event"
)

// credit is the amount that every user can pay.
const credit = 1000

// paid says whether an order can be paid. A real shop asks its bank.
func paid(r *http.Request) bool {
	total, err := strconv.Atoi(r.URL.Query().Get("total"))
	return err == nil && total <= credit
}

// orders takes orders. Whether an order counts is known only at its end: one that cannot be paid
// does not count.
func orders(s *shop) http.Handler {
	discounted := func(r *http.Request) bool { return r.URL.Query().Get("discounted") == "true" }
	api := func(r *http.Request) string {
		if discounted(r) {
			return "order.discount" // the API that the rule's verdict covers
		}
		return "order.create"
	}
	order := func(w http.ResponseWriter, r *http.Request) {
		outcome := "success"
		if !paid(r) {
			outcome = "failure"
			http.Error(w, "not paid", http.StatusPaymentRequired)
		} else {
			fmt.Fprintln(w, "ordered")
		}
		s.emitter.Emit(event.Event{UID: user(r), API: "order.create", Outcome: outcome, Attrs: []event.Attr{
			{Name: "discounted", Value: event.Value{Kind: event.Bool, Text: strconv.FormatBool(discounted(r))}},
		}})
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", s.limited(api, order))
	return mux
}
