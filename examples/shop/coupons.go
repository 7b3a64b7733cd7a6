package main

import (
	"fmt"
	"net/http"

	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// coupons redeems coupons. Each is good for a few orders a day, and each one too many costs money. So
// a request needs a permit before it is carried out, however many come at the same moment. A coupon
// whose order is not paid stays good for another one: the event at the end says what counts.
func coupons(s *shop) http.Handler {
	admitted := httplimit.Middleware(s.table, httplimit.Options{
		UID:    user,
		Attrs:  map[string]func(*http.Request) string{"coupon": func(r *http.Request) string { return r.PathValue("coupon") }},
		API:    httplimit.Constant("coupon.redeem"),
		Admit:  s.admitter, // asks for the permit
		Events: s.emitter,  // emits the event, which carries it
	})
	mux := http.NewServeMux()
	mux.Handle("POST /coupons/{coupon}", admitted(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !paid(r) {
			http.Error(w, "not paid", http.StatusPaymentRequired)
			return
		}
		fmt.Fprintln(w, "redeemed")
	})))
	return mux
}
