package doctor

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/base/retry"
)

// whileLoading tries again while a coordinator is elected or loads what it coordinates, as after
// a broker's start. It gives up within half of a check's timeout, so that the error names what
// took so long.
func (e *kafkaSide) whileLoading(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Timeout/2)
	defer cancel()
	pause := retry.Backoff{Min: 50 * time.Millisecond, Max: 500 * time.Millisecond}
	for {
		err := try()
		if !isLoading(err) || !pause.Wait(ctx) {
			return err
		}
	}
}

func isLoading(err error) bool {
	return errors.Is(err, sarama.ErrOffsetsLoadInProgress) || errors.Is(err, sarama.ErrConsumerCoordinatorNotAvailable) ||
		errors.Is(err, sarama.ErrNotCoordinatorForConsumer)
}
