package receive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/ops"
)

// poster posts JSON to a receiver.
type poster struct {
	*Config
	getenv func(string) string
	client *http.Client
}

// maxAnswer bounds what is read of an answer, which nobody has to trust.
const maxAnswer = 4 << 10

func newPoster(c *Config, getenv func(string) string, log *slog.Logger) (*poster, error) {
	t, err := ops.NewReread(ops.ClientFiles{CA: c.CA, Names: [3]string{"ca"}, Log: func() *slog.Logger { return log }}, &http.Transport{
		Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute,
		DialContext: (&net.Dialer{Timeout: c.Timeout}).DialContext, ForceAttemptHTTP2: true,
	})
	if err != nil {
		return nil, fmt.Errorf("receiver %s: %w", c.Name, err)
	}
	return &poster{Config: c, getenv: getenv, client: &http.Client{
		Timeout: c.Timeout, Transport: t,
		// A redirect would carry message, signature and token to where the operator did not send them.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close ends idle connections.
func (p *poster) Close() { p.client.CloseIdleConnections() }

// post sends a body to the address with path behind it, and returns the beginning of the answer.
func (p *poster) post(ctx context.Context, path string, body []byte, header http.Header) ([]byte, error) {
	address, err := p.URL.Read(p.getenv)
	if err != nil {
		return nil, setup(err)
	}
	if problem := checkURL(address, p.PlainHTTP); problem != "" {
		return nil, setup(errors.New(problem))
	}
	if path != "" {
		if address, err = url.JoinPath(address, path); err != nil {
			return nil, setup(errors.New("the address is none"))
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, setup(errors.New("the address is none"))
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "tallygate-notify/"+ops.Version())
	if p.Token.Given() {
		token, err := p.Token.Read(p.getenv)
		if err != nil {
			return nil, setup(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, &Failure{Err: withoutAddress(err), Reason: Unreachable}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, &Failure{Err: errors.New("the answer ends too early"), Reason: Unreachable}
	}
	return answer, judge(resp, answer)
}

// withoutAddress is an error of net/http without the address that it names.
func withoutAddress(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok && u.Timeout() {
		return errors.New("no answer in time")
	}
	return httpjson.Cause(err)
}

// word is an answer that is safe to show: such as Slack's no_service.
var word = regexp.MustCompile(`^[a-z]{1,20}(_[a-z]{1,20}){1,4}$`)

// judge makes a Failure of an answer's status. What the message itself causes is Lost: it would fail each time,
// and hold up what is behind it.
func judge(resp *http.Response, answer []byte) error {
	code := resp.StatusCode
	if code/100 == 2 {
		return nil
	}
	f := &Failure{Err: fmt.Errorf("it answers %d", code), Reason: Broken, After: retryAfter(resp.Header.Get("Retry-After"))}
	if text := bytes.TrimSpace(answer); word.Match(text) {
		f.Err = fmt.Errorf("it answers %d: %s", code, text)
	}
	switch {
	case code == http.StatusTooManyRequests:
		f.Reason = Limited
	case code == http.StatusBadRequest, code == http.StatusRequestEntityTooLarge, code == http.StatusUnsupportedMediaType, code == http.StatusUnprocessableEntity:
		f.Reason, f.Lost = Refused, true
	case code/100 == 3:
		f.Reason, f.Err = Denied, fmt.Errorf("it answers %d, a redirect: write the address that it leads to", code)
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly:
	case code/100 == 4:
		f.Reason = Denied
	}
	return f
}

// maxAfter bounds the wait that a receiver asks for.
const maxAfter = time.Hour

// retryAfter reads the header: seconds, or a date.
func retryAfter(text string) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil {
		return min(max(time.Duration(seconds)*time.Second, 0), maxAfter)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(time.Until(at), 0), maxAfter)
	}
	return 0
}
