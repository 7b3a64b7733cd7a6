// Package apiclient has the options by which programs reach the HTTP APIs of aggregators and enforcers.
package apiclient

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/ops"
)

// Usual is an aggregator's address when none is given.
const Usual = "127.0.0.1:8081"

// Options name an aggregator, and the credentials for it.
type Options struct {
	*ops.Options
	addr, tokenFile, ca, cert, key string
}

// NewOptions adds the options to those of a command.
func NewOptions(o *ops.Options) *Options {
	a := &Options{Options: o}
	o.StringVar(&a.addr, "aggregator", Usual, "an aggregator's HTTP API, `HOST:PORT`, or https://HOST:PORT")
	o.StringVar(&a.tokenFile, "token-file", "", "`FILE` with the token to show; without it that in TALLYGATE_TOKEN, if any")
	o.StringVar(&a.ca, "ca", "", "`FILE` with the PEM certificates to trust instead of the system's")
	o.StringVar(&a.cert, "cert", "", "`FILE` with our certificate, where the aggregator asks for one")
	o.StringVar(&a.key, "key", "", "`FILE` with our certificate's key")
	return a
}

// AtOnce is the greatest number of a caller's requests under way: so many connections are kept.
const AtOnce = 4

// hints name our options in what errors say.
var hints = api.Hints{
	Address:    " (--aggregator)",
	Credential: ": a token in TALLYGATE_TOKEN or --token-file, or --cert and --key",
}

// NewOptionsOfMany are options of which --aggregator takes several addresses: see OpenAll.
func NewOptionsOfMany(o *ops.Options) *Options {
	a := NewOptions(o)
	o.Lookup("aggregator").Usage = "the aggregators' HTTP APIs, `HOST:PORT,…`, or https://HOST:PORT; when one does not answer, the next is asked"
	return a
}

// OpenAll is Open for several addresses, separated by commas: a client of all of them.
func (o *Options) OpenAll() (*api.Client, error) {
	var all *api.Client
	var errs []error
	for addr := range strings.SplitSeq(o.addr, ",") {
		one := *o
		one.addr = strings.TrimSpace(addr)
		switch c, err := one.Open(); {
		case err != nil:
			errs = append(errs, err)
		case all == nil:
			all = c
		default:
			all = all.And(c)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return all, nil
}

// Open reads the files; each request goes by what they hold then. It sends no request.
func (o *Options) Open() (*api.Client, error) {
	base := o.addr
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, &ops.UsageError{Err: fmt.Errorf("--aggregator %q: HOST:PORT, http://HOST:PORT or https://HOST:PORT", o.addr)}
	}
	if u.Scheme == "http" && (o.ca != "" || o.cert != "" || o.key != "") {
		return nil, &ops.UsageError{Err: fmt.Errorf("--ca, --cert and --key are for TLS: --aggregator https://%s", u.Host)}
	}
	token, err := o.SecretNow("TALLYGATE_TOKEN", o.tokenFile)
	if err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	files, err := ops.NewReread(ops.ClientFiles{CA: o.ca, Cert: o.cert, Key: o.key, Names: [3]string{"--ca", "--cert", "--key"}, Log: o.Logger},
		&http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: AtOnce, ExpectContinueTimeout: time.Second})
	if err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	return New(base, &http.Client{Transport: files}).WithTokens(token), nil
}

// Trusting returns a transport for other servers of the installation, such as enforcers: it trusts what --ca names,
// by what the file holds at each request, and shows nothing. Else it is like base.
func (o *Options) Trusting(base *http.Transport) (*ops.Reread, error) {
	return ops.NewReread(ops.ClientFiles{CA: o.ca, Names: [3]string{"--ca"}, Log: o.Logger}, base)
}

// HasAuthority reports whether --ca is given.
func (o *Options) HasAuthority() bool { return o.ca != "" }

// New is api.New, whose errors name our options.
func New(base string, client *http.Client) *api.Client { return api.New(base, client).WithHints(hints) }
