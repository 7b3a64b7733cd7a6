package enforcer

import (
	"errors"
	"log/slog"
	"net"

	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
)

// usageOptions are the options about descriptors that report.
type usageOptions struct {
	into    *envoylimit.Usage
	entries ops.Table
}

func addUsage(o *ops.Options, into *envoylimit.Usage) *usageOptions {
	u := &usageOptions{into: into}
	o.StringVar(&into.Domain, "usage-domain", "",
		"`domain` of rate limit requests that report usage: a descriptor with hits_addend above 0 becomes an event in --kafka, and is always OK; one with 0 asks")
	u.entries = o.Table("usage-descriptors", "`NAME=VALUE,…`: entries that mark single rate limit descriptors, of any domain, as reports of usage")
	o.StringVar(&into.Attr, "usage-attr", "",
		"`name` of an attribute that has a report's hits_addend as well, as a number, for rules that sum attrs.NAME instead of cost")
	o.BoolVar(&into.Quotas, "rlqs", false,
		"experimental: serve Envoy's rate limit quota service on --grpc-listen; what it reports as let through becomes events in --kafka, which have no id")
	return u
}

func (u *usageOptions) build() error {
	u.into.Entries = u.entries
	if u.into.Attr != "" && !u.into.On() {
		return errors.New("--usage-attr needs --usage-domain, --usage-descriptors or --rlqs, which say what reports usage")
	}
	return nil
}

// sayReportable warns that whoever reaches the gRPC port may use up budgets. Its callers are proxies, which have no
// tokens: a client certificate is the only credential there.
func sayReportable(log *slog.Logger, u *envoylimit.Usage, grpc net.Listener, certificates bool) {
	switch {
	case !u.On():
	case grpc == nil:
		log.Warn("nobody can report usage: that needs --grpc-listen")
	case !certificates && !access.Loopback(grpc.Addr()):
		log.Warn("whoever reaches this address can report usage of anybody: admit proxies only, by --tls-client-ca or a network policy",
			"grpc_listen", grpc.Addr().String())
	}
}
