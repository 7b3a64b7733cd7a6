package envoylimit_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/proto"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
)

func TestExtAuthz(t *testing.T) {
	conn := dial(t, envoylimit.Config{Decider: tableOf(t, block("uid", "42", "post.orders"), block("ip", "198.51.100.7", "get.by-address"),
		block("ip", "203.0.113.9", "*"), block("attrs.device", "d1", "*"))})
	for request, denied := range map[string]bool{
		"POST /orders?x=1|x-tallygate-uid: 42":                         true,
		"GET /orders|x-tallygate-uid: 42":                              false,
		"POST /orders|x-tallygate-uid: 43":                             false,
		"POST /orders|x-tallygate-uid: 42|x-tallygate-api: get.orders": false,
		"GET /|x-tallygate-uid: 42|x-tallygate-api: post.orders":       true,
		"GET /|x-tallygate-uid: 42|x-original-uri: /orders":            false, // the request says what it is
		"GET /by-address": true, // whom Envoy takes for the client
		"GET /by-address|x-tallygate-ip: 198.51.100.8":                    false,
		"GET /|x-tallygate-ip: 198.51.100.8, 203.0.113.9":                 true,
		"GET /|x-tallygate-attr-device: d1":                               true,
		"GET /|x-tallygate-attr-device: d2":                               false,
		"POST //orders|x-tallygate-uid: 42":                               true,
		"POST /orders/../../x|x-tallygate-uid: 42|x-tallygate-ip: nobody": false,
	} {
		what, headers, _ := strings.Cut(request, "|")
		method, path, _ := strings.Cut(what, " ")
		resp := checked(t, conn, from(method, path, strings.Split(headers, "|")...))
		if got := resp.GetDeniedResponse() != nil; got != denied || (resp.GetStatus().GetCode() == 0) == denied || (resp.GetOkResponse() != nil) == denied {
			t.Errorf("%s: %v", request, resp)
		}
	}
}

// What a route's configuration says wins over what a client may have sent.
func TestExtAuthzContextExtensions(t *testing.T) {
	conn := dial(t, envoylimit.Config{Decider: tableOf(t, block("uid", "42", "search.query"), block("attrs.tenant", "t1", "*"))})
	a := from("GET", "/s", "x-tallygate-uid: 42", "x-tallygate-api: harmless")
	a.ContextExtensions = map[string]string{"api": "search.query", "other": "x"}
	if checked(t, conn, a).GetDeniedResponse() == nil {
		t.Error("the API is the client's choice")
	}
	a.ContextExtensions["uid"] = "43"
	if checked(t, conn, a).GetDeniedResponse() != nil {
		t.Error("the uid is the client's choice")
	}
	a.ContextExtensions["attrs.tenant"] = "t1"
	if checked(t, conn, a).GetDeniedResponse() == nil {
		t.Error("an attribute has no effect")
	}
}

// What Envoy hands to the client is what the middleware would have answered.
func TestExtAuthzAnswer(t *testing.T) {
	conn := dial(t, envoylimit.Config{Decider: tableOf(t, block("uid", "42", "*")), Headers: forwardauth.Headers{UID: "X-User"}})
	resp := checked(t, conn, from("GET", "/", "x-user: 42")).GetDeniedResponse()
	if resp.GetStatus().GetCode() != 429 {
		t.Errorf("status %v", resp.GetStatus())
	}
	got := map[string][]string{}
	for _, h := range resp.GetHeaders() {
		got[h.GetHeader().GetKey()] = append(got[h.GetHeader().GetKey()], h.GetHeader().GetValue())
		if h.GetAppendAction() != corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
			t.Errorf("%v is added to what Envoy sets", h)
		}
	}
	wantHeaders(t, got, denial)
	var p enforce.Problem
	if err := json.Unmarshal([]byte(resp.GetBody()), &p); err != nil || p.Rule != "searches" {
		t.Errorf("%s: %v", resp.GetBody(), err)
	}
	if body := checked(t, conn, from("HEAD", "/", "x-user: 42")).GetDeniedResponse().GetBody(); body != "" {
		t.Errorf("HEAD has the body %s", body)
	}
}

// Envoy may be told to send headers as a list, with values that are not UTF-8.
func TestExtAuthzRawHeaders(t *testing.T) {
	conn := dial(t, envoylimit.Config{Decider: tableOf(t, block("uid", "42", "*"))})
	a := from("GET", "/")
	a.Request.Http.HeaderMap = &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
		{Key: "x-odd", RawValue: []byte{0xff}}, {Key: "x-tallygate-uid", RawValue: []byte("42")}}}
	if code := checked(t, conn, a).GetDeniedResponse().GetStatus().GetCode(); code != 429 {
		t.Errorf("denied with %d", code)
	}
	a.Request.Http.HeaderMap.Headers = append(a.Request.Http.HeaderMap.Headers, &corev3.HeaderValue{Key: "x-tallygate-uid", RawValue: []byte("41")})
	if code := checked(t, conn, a).GetDeniedResponse().GetStatus().GetCode(); code != 400 {
		t.Errorf("two users are denied with %d; a client may have added one", code)
	}
}

// Whatever a peer sends that protobuf can read is answered.
func FuzzExtAuthzRequest(f *testing.F) {
	seed, err := proto.Marshal(&authv3.CheckRequest{Attributes: from("GET", "/a/b?c", "x-tallygate-uid: 42", "x-tallygate-ip: 1.2.3.4", "x-tallygate-attr-x: y")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte{})
	s, err := envoylimit.New(envoylimit.Config{Decider: tableOf(f, block("uid", "42", "*"))})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var req authv3.CheckRequest
		if proto.Unmarshal(data, &req) != nil {
			return
		}
		resp, err := s.Check(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := proto.Marshal(resp); err != nil {
			t.Errorf("the answer can't be sent: %v", err)
		}
	})
}
