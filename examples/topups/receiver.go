package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// receiver is the endpoint that the provider calls.
type receiver struct {
	secret     []byte
	aggregator string // its URL
	token      string // of a credential with the role operator
	client     *http.Client
	now        func() time.Time
}

// tolerance bounds the age of a signature, so that nobody sends an old request again.
const tolerance = 5 * time.Minute

// paid is the part of the webhook that is read: an invoice whose metadata say who bought how much.
type paid struct {
	Type string `json:"type"`
	Data struct {
		Object struct {
			ID       string            `json:"id"`
			Metadata map[string]string `json:"metadata"`
		} `json:"object"`
	} `json:"data"`
}

// ServeHTTP answers 200 only when the grant is complete, or can never be: the provider repeats anything else.
func (v *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	if err == nil {
		err = v.signed(r.Header.Get("Stripe-Signature"), body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var event paid
	if err := json.Unmarshal(body, &event); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if event.Type != "invoice.paid" {
		return // one that we did not ask for, which is no mistake
	}
	if err := v.grant(r, &event); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// signed checks the provider's signature: an HMAC of the time and of the body as it came, byte for byte. A body that was
// decoded and encoded again would be another one.
func (v *receiver) signed(header string, body []byte) error {
	var at string
	var signatures [][]byte
	for part := range strings.SplitSeq(header, ",") {
		switch name, value, _ := strings.Cut(strings.TrimSpace(part), "="); name {
		case "t":
			at = value
		case "v1": // several, while the secret changes
			if s, err := hex.DecodeString(value); err == nil {
				signatures = append(signatures, s)
			}
		}
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return errors.New("the signature has no time")
	}
	if age := v.now().Sub(time.Unix(seconds, 0)); age > tolerance || age < -tolerance {
		return errors.New("the signature is too old")
	}
	mac := hmac.New(sha256.New, v.secret)
	fmt.Fprintf(mac, "%s.%s", at, body)
	want := mac.Sum(nil)
	for _, s := range signatures {
		if hmac.Equal(s, want) { // in constant time: how far a wrong one is right must not show
			return nil
		}
	}
	return errors.New("the signature is not ours")
}

// grant asks the aggregator to add what was bought. It is complete with the answer 200. A 409 says that it can never be,
// such as an id that was granted for something else: that is for a person to see, and no repetition mends it.
func (v *receiver) grant(r *http.Request, of *paid) error {
	bought := of.Data.Object
	body, err := json.Marshal(map[string]any{
		"id": bought.ID, "key": map[string]string{"uid": bought.Metadata["uid"]}, "rule": bought.Metadata["rule"],
		"amount": bought.Metadata["amount"], "reason": "invoice " + bought.ID,
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, v.aggregator+"/v1/grants", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if v.token != "" {
		req.Header.Set("Authorization", "Bearer "+v.token)
	}
	answer, err := v.client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusConflict {
		return fmt.Errorf("the aggregator answers %s", answer.Status)
	}
	return nil
}
