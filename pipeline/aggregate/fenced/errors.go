package fenced

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
	"github.com/tallygate/tallygate/internal/base/retry"
)

// ErrFenced says that another owner has taken the partition over, or may have.
var ErrFenced = errors.New("fenced: another owner has taken this partition over")

// errAnswer is a broker's refusal that retrying cannot fix.
var errAnswer = errors.New("the broker refused")

// retriableProduce are the answers after which the same batch may be sent again. After any other,
// the log's state is not what the writer assumes, or it cannot be fixed in time.
var retriableProduce = []sarama.KError{
	sarama.ErrUnknownTopicOrPartition, sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition,
	sarama.ErrRequestTimedOut, sarama.ErrBrokerNotAvailable, sarama.ErrReplicaNotAvailable,
	sarama.ErrNetworkException, sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend,
	sarama.ErrInvalidMessage, sarama.ErrKafkaStorageError, sarama.ErrFencedLeaderEpoch,
	sarama.ErrUnknownLeaderEpoch, sarama.ErrThrottlingQuotaExceeded,
}

var retriableInit = []sarama.KError{
	sarama.ErrOffsetsLoadInProgress, sarama.ErrConsumerCoordinatorNotAvailable, sarama.ErrNotCoordinatorForConsumer,
	sarama.ErrConcurrentTransactions, sarama.ErrRequestTimedOut, sarama.ErrNetworkException,
	sarama.ErrBrokerNotAvailable, sarama.ErrLeaderNotAvailable, sarama.ErrThrottlingQuotaExceeded,
	sarama.ErrUnknownTopicOrPartition, sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend,
}

var fencing = []sarama.KError{
	sarama.ErrInvalidProducerEpoch, sarama.ErrProducerFenced, sarama.ErrInvalidProducerIDMapping,
}

// answer turns a broker's error code into an error that says what it means for the owner.
func answer(code sarama.KError, retriable []sarama.KError) error {
	switch {
	case code == sarama.ErrNoError:
		return nil
	case slices.Contains(fencing, code):
		return fmt.Errorf("%w (%w)", ErrFenced, code)
	case slices.Contains(retriable, code):
		return code
	}
	return fmt.Errorf("%w: %w", errAnswer, code)
}

// final reports whether retrying is useless. Errors that are not answers concern the connection,
// and do not tell whether the request arrived.
func final(err error) bool {
	if errors.Is(err, ErrFenced) || errors.Is(err, errAnswer) || errors.Is(err, sarama.ErrClosedClient) {
		return true
	}
	if _, ok := errors.AsType[sarama.PacketEncodingError](err); ok {
		return true
	}
	if _, ok := errors.AsType[sarama.ConfigurationError](err); ok {
		return true
	}
	return errors.Is(err, sarama.ErrUnsupportedVersion) || errors.Is(err, sarama.ErrTopicAuthorizationFailed) ||
		errors.Is(err, sarama.ErrTransactionalIDAuthorizationFailed)
}

// ended is the error after the last attempt, which returned err: either ctx ended, or err is final.
func ended(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w (last: %w)", cause, err)
}

// newPause returns the backoff between attempts.
func newPause() *retry.Backoff {
	return &retry.Backoff{Min: 50 * time.Millisecond, Max: 500 * time.Millisecond}
}

// lasting reports whether attempts have failed for some seconds. A moving leader or coordinator
// takes that long.
func lasting(pause *retry.Backoff) bool { return pause.Failures() >= 8 }
