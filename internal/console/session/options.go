package session

import (
	"github.com/tallygate/tallygate/internal/run/access/issuer"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// Options are those of the sessions of a console.
type Options struct {
	keyFile, external string
	login             *issuer.LoginOptions
	proxies           *httplimit.Proxies
}

// NewOptions adds the options to those of a command.
func NewOptions(o *ops.Options) *Options {
	s := &Options{login: issuer.NewLoginOptions(o)}
	o.StringVar(&s.keyFile, "session-key-file", "", "`FILE` with the keys that seal logins, one a line, the newest first; reloaded when it changes. All consoles of one address need the same. Without it the key is random, and logins end with the process")
	o.StringVar(&s.external, "external-url", "", "`URL` at which readers reach the console, such as https://console.example.com; --oidc-issuer needs it")
	o.Func("trusted-proxies", "`NETWORK,…` of your own proxies, such as 10.0.0.0/8: behind them logins that fail are counted by the address that they name in X-Forwarded-For", func(text string) (err error) {
		s.proxies, err = httplimit.ParseProxies(text)
		return err
	})
	return s
}

// Fill sets what the options say.
func (s *Options) Fill(c *Config) (err error) {
	c.KeyFile, c.External, c.Proxies = s.keyFile, s.external, s.proxies
	c.Login, err = s.login.Build()
	return err
}
