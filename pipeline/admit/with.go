package admit

import (
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/enforce"
)

// With is for tallygate.Config.Admit: it makes an Admitter with these settings, and the Redis, the prefix
// and the log that it is given. Those of cfg are not used.
func With(cfg Config) func(client redis.UniversalClient, prefix string, log *slog.Logger) (enforce.RunningAdmitter, error) {
	return func(client redis.UniversalClient, prefix string, log *slog.Logger) (enforce.RunningAdmitter, error) {
		cfg := cfg
		cfg.Redis, cfg.Prefix, cfg.Logger = client, prefix, log
		return New(cfg)
	}
}
