package aggregate

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// The reasons of tallygate_kafka_errors_total.
const (
	reasonAuth     = "auth"     // user, password, certificate or rights
	reasonCorrupt  = "corrupt"  // a batch's checksum is wrong
	reasonCut      = "cut"      // the log has lost records that were read
	reasonFenced   = "fenced"   // another owner has the partition
	reasonLeader   = "leader"   // no leader, or a new one: an election
	reasonReplicas = "replicas" // fewer in sync than the topic requires
	reasonTimeout  = "timeout"
	reasonAway     = "unreachable"
	reasonOther    = "other"
)

var reasons = []string{
	reasonAuth, reasonCorrupt, reasonCut, reasonFenced, reasonLeader, reasonReplicas, reasonTimeout, reasonAway, reasonOther,
}

// reasonOf returns the reason that an error counts under.
func reasonOf(err error) string {
	switch {
	case anyOf(err, kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed,
		kerr.TransactionalIDAuthorizationFailed, kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism,
		sarama.ErrTopicAuthorizationFailed, sarama.ErrGroupAuthorizationFailed, sarama.ErrClusterAuthorizationFailed,
		sarama.ErrTransactionalIDAuthorizationFailed, sarama.ErrSASLAuthenticationFailed, sarama.ErrUnsupportedSASLMechanism),
		isTLS(err):
		return reasonAuth
	case anyOf(err, kafkalog.ErrCorrupt, kerr.CorruptMessage, sarama.ErrInvalidMessage):
		return reasonCorrupt
	case anyOf(err, kafkalog.ErrCut, kafkalog.ErrOutOfRange, kafkalog.ErrTopicChanged):
		return reasonCut
	case errors.Is(err, fenced.ErrFenced):
		return reasonFenced
	case anyOf(err, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend):
		return reasonReplicas
	case anyOf(err, kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.UnknownTopicOrPartition,
		kerr.ReplicaNotAvailable, kerr.OffsetNotAvailable, kerr.UnknownTopicID, sarama.ErrNotLeaderForPartition, sarama.ErrLeaderNotAvailable,
		sarama.ErrFencedLeaderEpoch, sarama.ErrUnknownLeaderEpoch, sarama.ErrUnknownTopicOrPartition, sarama.ErrReplicaNotAvailable,
		sarama.ErrNotCoordinatorForConsumer, sarama.ErrConsumerCoordinatorNotAvailable):
		return reasonLeader
	case isTimeout(err):
		return reasonTimeout
	case anyOf(err, sarama.ErrOutOfBrokers, sarama.ErrNotConnected, sarama.ErrBrokerNotAvailable), isNetwork(err):
		return reasonAway
	}
	return reasonOther
}

func anyOf(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

func isTLS(err error) bool {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	return certificate || alert
}

func isTimeout(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout() || anyOf(err, context.DeadlineExceeded, kerr.RequestTimedOut, sarama.ErrRequestTimedOut)
}

func isNetwork(err error) bool {
	_, op := errors.AsType[*net.OpError](err)
	_, name := errors.AsType[*net.DNSError](err)
	return op || name || anyOf(err, net.ErrClosed, io.EOF, io.ErrUnexpectedEOF)
}
