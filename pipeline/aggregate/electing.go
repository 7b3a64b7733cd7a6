package aggregate

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/tallygate/tallygate/internal/base/retry"
)

const (
	minBackoff = 200 * time.Millisecond
	maxBackoff = 10 * time.Second

	// maxJoinBackoff applies while this member is in no session, because its attempts disturb no
	// other. If the group's coordinator fails, the next one is elected within seconds.
	maxJoinBackoff = 2 * time.Second
)

// electionPatience bounds a start's wait for leaders, such as while brokers restart one by one.
const electionPatience = time.Minute

// whileElecting retries what failed because a partition has no leader, or a new one. It returns any
// other error at once, such as for an address without Kafka, because whoever starts a program must
// see it.
func whileElecting(ctx context.Context, log *slog.Logger, try func() error) error {
	deadline := time.Now().Add(electionPatience)
	pause := retry.Backoff{Min: minBackoff, Max: maxBackoff}
	for {
		err := try()
		if err == nil || !slices.Contains([]string{reasonLeader, reasonReplicas, reasonTimeout}, reasonOf(err)) || time.Now().After(deadline) {
			return err
		}
		wait := pause.Next()
		log.Warn("start delayed until Kafka is ready", "error", err, "retry_seconds", wait.Seconds())
		if !retry.Sleep(ctx, wait) {
			return err
		}
	}
}
