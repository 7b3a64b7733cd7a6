package aggregate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/tallygate/tallygate/internal/httpjson"
)

// forward sends the request to the partition's owner, and passes on its answer.
func (a *answers) forward(w http.ResponseWriter, r *http.Request, partition int32, client *http.Client, body []byte) {
	to, err := a.owner(r.Context(), partition)
	if err != nil {
		httpjson.Problem(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	req, err := a.peers.request(r.Context(), r.Method, to, r.URL.Path+"?"+r.URL.RawQuery, body)
	if err != nil {
		httpjson.Problem(w, http.StatusBadGateway, err.Error())
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		httpjson.Problem(w, http.StatusBadGateway, "ask the owner of the key: "+httpjson.Cause(err).Error())
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized { // of this instance, not of the caller
		httpjson.Problem(w, http.StatusServiceUnavailable, "the owner of the key does not know this instance as a member of the group: nothing was done, try again")
		return
	}
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, io.LimitReader(resp.Body, 8<<20)) // the client notices a truncated reply
}

// askOwner asks a partition's owner, and reads its answer.
func askOwner(ctx context.Context, a *answers, partition int32, method, path string, body []byte, into any) error {
	to, err := a.owner(ctx, partition)
	if err != nil {
		return err
	}
	return a.peers.askInstance(ctx, to, method, path, body, into)
}

// askInstance asks another instance, and reads its answer.
func (p *peers) askInstance(ctx context.Context, to address, method, path string, body []byte, into any) error {
	client := p.ask
	if method != http.MethodGet {
		client = p.command
	}
	req, err := p.request(ctx, method, to, path, body)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask its owner: %w", httpjson.Cause(err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return fmt.Errorf("ask its owner: read the answer of %s: %w", to.addr, err)
	}
	if resp.StatusCode != http.StatusOK {
		var problem struct{ Detail string }
		_ = json.Unmarshal(text, &problem) // without one its status says enough
		return fmt.Errorf("its owner %s answers %s: %s", to.addr, resp.Status, problem.Detail)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("ask its owner: read the answer of %s: %w", to.addr, err)
	}
	return nil
}

// Peer returns the actor on whose behalf another instance of the group has forwarded r. ok is false
// if r does not claim to be forwarded. An error says why the claim is not believed.
func (a *answers) Peer(r *http.Request) (actor Actor, ok bool, err error) {
	given := r.Header.Values(peerHeader)
	if len(given) == 0 {
		return Actor{}, false, nil
	}
	if len(given) > 1 {
		return Actor{}, false, errors.New("it has several signatures")
	}
	c, signature, err := parsePeer(given[0])
	if err != nil {
		return Actor{}, false, err
	}
	if err := a.checkClaim(c, r); err != nil {
		return Actor{}, false, err
	}
	known := r.Method == http.MethodGet && a.members.hadKey(r.Context(), a.instance, c.Key)
	if !known && (r.Method == http.MethodGet || !a.members.hasKey(a.instance, c.Key)) {
		return Actor{}, false, errors.New("no member of the group has its key: it may have joined just now")
	}
	if r.Method != http.MethodGet && !a.peers.first(signature) {
		return Actor{}, false, errors.New("it was sent before")
	}
	return Actor{Name: c.Name, Role: c.Role}, true, nil
}

// checkClaim compares what was signed with the request that arrived.
func (a *answers) checkClaim(c peerClaim, r *http.Request) error {
	if c.To != a.cfg.Advertise || c.Method != r.Method || !bytes.Equal(c.URI, digest([]byte(r.RequestURI))) {
		return fmt.Errorf("it was signed for another request, or another instance: %.200q", c.To)
	}
	if off := time.Since(time.UnixMilli(c.At)); off.Abs() > peerClock {
		return fmt.Errorf("it was signed %v ago by the clock of its instance: keep clocks by NTP", off.Round(time.Millisecond))
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxCommandBody))
	if err != nil {
		return fmt.Errorf("read its body: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if !bytes.Equal(digest(body), c.Body) {
		return errors.New("another body was signed")
	}
	return nil
}
