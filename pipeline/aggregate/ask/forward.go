package ask

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/httpjson"
)

// forward sends the request to the partition's owner, and passes on its answer.
func (a *base) forward(w http.ResponseWriter, r *http.Request, partition int32, client *http.Client, body []byte) {
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
		httpjson.Problem(w, http.StatusServiceUnavailable,
			"the owner of the key does not know this instance as a member of the group: nothing was done, try again")
		return
	}
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, io.LimitReader(resp.Body, 8<<20)) // the client notices a truncated reply
}

// owner returns where a partition's owner can be reached.
func (a *base) owner(ctx context.Context, partition int32) (Address, error) {
	owners, err := a.group.Owners()
	if err != nil {
		return Address{}, err
	}
	if o, ok := owners[partition]; ok {
		return o, cmp.Or(o.Err, ctx.Err())
	}
	return Address{}, fmt.Errorf("partition %d has no owner at the moment: the group rebalances, or no instance runs", partition)
}

// askOwner asks a partition's owner, and reads its answer.
func askOwner[T any](ctx context.Context, a *base, partition int32, method, path string, body []byte) (answer T, err error) {
	to, err := a.owner(ctx, partition)
	if err != nil {
		return answer, err
	}
	return askInstance[T](ctx, a.peers, to, method, path, body)
}

// askInstance asks another instance, and reads its answer.
func askInstance[T any](ctx context.Context, p *peers, to Address, method, path string, body []byte) (answer T, err error) {
	client := p.ask
	if method != http.MethodGet {
		client = p.command
	}
	req, err := p.request(ctx, method, to, path, body)
	if err != nil {
		return answer, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer, fmt.Errorf("ask its owner: %w", httpjson.Cause(err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return answer, fmt.Errorf("ask its owner: read the answer of %s: %w", to.Addr, err)
	}
	if resp.StatusCode != http.StatusOK {
		var problem api.Problem
		_ = json.Unmarshal(text, &problem) // without one its status says enough
		return answer, fmt.Errorf("its owner %s answers %s: %s", to.Addr, resp.Status, problem.Detail)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return answer, fmt.Errorf("ask its owner: read the answer of %s: %w", to.Addr, err)
	}
	return answer, nil
}

// Peer returns the actor on whose behalf another instance of the group has forwarded r. ok is false
// if r does not claim to be forwarded. An error says why the claim is not believed.
func (a *Answers) Peer(r *http.Request) (actor Actor, ok bool, err error) {
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
	if !a.group.Knows(r.Context(), c.Key, r.Method != http.MethodGet) {
		return Actor{}, false, errors.New("no member of the group has its key: it may have joined just now")
	}
	if r.Method != http.MethodGet && !a.peers.first(signature) {
		return Actor{}, false, errors.New("it was sent before")
	}
	return Actor{Name: c.Name, Role: c.Role}, true, nil
}

// checkClaim compares what was signed with the request that arrived.
func (a *base) checkClaim(c peerClaim, r *http.Request) error {
	if c.To != a.advertise || c.Method != r.Method || !bytes.Equal(c.URI, digest([]byte(r.RequestURI))) {
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
