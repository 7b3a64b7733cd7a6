package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
)

func ExampleClient() {
	aggregator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("key.api") == "" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"detail":"name an API","status":400,"title":"Bad Request","type":"about:blank"}`)
			return
		}
		fmt.Fprint(w, `{"key":{"api":"coupon.redeem","uid":"42"},"partition":3,"rules":[{"rule":"coupons","count":4,"limit":5,"left":1}]}`)
	}))
	defer aggregator.Close()

	client := api.New(aggregator.URL, nil).WithToken("a token")
	a, err := client.Explain(context.Background(), api.KeyQuery([]event.Dim{{Name: "api", Value: "coupon.redeem"}, {Name: "uid", Value: "42"}}))
	if err != nil {
		panic(err)
	}
	for _, r := range a.Rules {
		fmt.Println(r.Rule, r.Count, "of", r.Limit)
	}

	_, err = client.Explain(context.Background(), api.KeyQuery([]event.Dim{{Name: "uid", Value: "42"}}))
	if refusal, ok := errors.AsType[*api.Refusal](err); ok {
		fmt.Println(refusal.Status, refusal)
	}
	// Output:
	// coupons 4 of 5
	// 400 name an API
}
