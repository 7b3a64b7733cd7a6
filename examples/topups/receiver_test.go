package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const invoice = `{"type":"invoice.paid","data":{"object":{"id":"in_1","metadata":{"uid":"42","rule":"api-quota","amount":"500"}}}}`

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// granting stands for an aggregator: it keeps each grant once, by its id.
type granting struct {
	*httptest.Server
	byID   map[string]string
	asked  int
	status int // of its answers
}

func newGranting(t *testing.T) *granting {
	g := &granting{byID: map[string]string{}, status: http.StatusOK}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/v1/grants" {
			t.Errorf("%s: %v", r.URL, err)
		}
		if g.asked++; g.status == http.StatusOK {
			g.byID[fmt.Sprint(body["id"])] = fmt.Sprint(body["key"], body["rule"], body["amount"])
		}
		w.WriteHeader(g.status)
	}))
	t.Cleanup(g.Close)
	return g
}

func signature(secret, body string, at time.Time) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
}

func post(v *receiver, body, signed string) int {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Stripe-Signature", signed)
	v.ServeHTTP(w, r)
	return w.Code
}

// A webhook that was answered too late comes again. Both are answered, and one grant remains; one that the aggregator
// could not carry out is to come again.
func TestAWebhookSentTwiceGrantsOnce(t *testing.T) {
	g := newGranting(t)
	v := &receiver{secret: []byte("s"), aggregator: g.URL, client: g.Client(), now: func() time.Time { return noon }}
	signed := signature("s", invoice, noon)
	g.status = http.StatusGatewayTimeout
	if got := post(v, invoice, signed); got != http.StatusBadGateway {
		t.Errorf("a grant that is not complete is answered %d", got)
	}
	g.status = http.StatusOK
	for range 2 {
		if got := post(v, invoice, signed); got != http.StatusOK {
			t.Errorf("answered %d", got)
		}
	}
	if g.asked != 3 || len(g.byID) != 1 || g.byID["in_1"] != "map[uid:42]api-quota500" {
		t.Errorf("asked %d times: %v", g.asked, g.byID)
	}
}

// Whoever knows the address could grant themselves what they like.
func TestOnlyWhatIsSignedIsBelieved(t *testing.T) {
	g := newGranting(t)
	v := &receiver{secret: []byte("s"), aggregator: g.URL, client: g.Client(), now: func() time.Time { return noon }}
	for what, signed := range map[string]string{
		"none": "", "another secret": signature("x", invoice, noon), "another body": signature("s", invoice+" ", noon),
		"an old one": signature("s", invoice, noon.Add(-time.Hour)), "no time": "v1=00", "no signature": fmt.Sprintf("t=%d", noon.Unix()),
	} {
		if got := post(v, invoice, signed); got != http.StatusBadRequest {
			t.Errorf("%s: answered %d", what, got)
		}
	}
	other := `{"type":"invoice.created"}`
	if got := post(v, other, signature("s", other, noon)); got != http.StatusOK || g.asked != 0 {
		t.Errorf("another event: answered %d, asked %d times", got, g.asked)
	}
}
