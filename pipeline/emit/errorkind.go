package emit

import (
	"crypto/tls"
	"errors"
	"strings"

	"github.com/segmentio/kafka-go"
)

// ErrorKind classifies Kafka's errors.
type ErrorKind string

// The kinds of ErrorKind.
const (
	ErrorAuth     ErrorKind = "auth"        // it refuses the user, the password, or a right
	ErrorTopic    ErrorKind = "topic"       // there is no such topic
	ErrorTLS      ErrorKind = "tls"         // one side refuses the other's certificate or protocol
	ErrorReplicas ErrorKind = "replicas"    // fewer are in sync than the topic requires, or none leads
	ErrorRefused  ErrorKind = "refused"     // it will never take these records
	ErrorOther    ErrorKind = "other"       // it answered with another error
	ErrorAway     ErrorKind = "unreachable" // it did not answer
)

// ErrorKinds are all kinds of ErrorKind.
var ErrorKinds = [...]ErrorKind{ErrorAuth, ErrorTopic, ErrorTLS, ErrorReplicas, ErrorRefused, ErrorOther, ErrorAway}

// authErrors are Kafka's words for a user, a password or a right that it refuses.
var authErrors = []error{
	kafka.SASLAuthenticationFailed, kafka.UnsupportedSASLMechanism, kafka.IllegalSASLState,
	kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed, kafka.SecurityDisabled,
}

// KindOf returns the kind of an error, such as Stats.LastError.
func KindOf(err error) ErrorKind {
	var answer kafka.Error
	switch {
	case isAny(err, authErrors):
		return ErrorAuth
	case errors.Is(err, kafka.UnknownTopicOrPartition), errors.Is(err, kafka.InvalidTopic):
		return ErrorTopic
	case isAny(err, []error{kafka.NotEnoughReplicas, kafka.NotEnoughReplicasAfterAppend, kafka.LeaderNotAvailable, kafka.NotLeaderForPartition}):
		return ErrorReplicas
	case refused(err):
		return ErrorRefused
	case errors.As(err, &answer):
		return ErrorOther
	case isTLS(err):
		return ErrorTLS
	case strings.Contains(err.Error(), "SASL"): // kafka-go has some texts without a type
		return ErrorAuth
	}
	return ErrorAway
}

func isAny(err error, of []error) bool {
	for _, one := range of {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// isTLS reports whether a handshake failed. Alerts of the other side have no type that is exported.
func isTLS(err error) bool {
	var record tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &record) || errors.As(err, &certificate) ||
		strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "x509: ")
}

// advice tells operators what to do about it; "" when waiting may be all.
func (k ErrorKind) advice() string {
	switch k {
	case ErrorAuth:
		return "check SASL of emit.Config, and that the user may write to the topic: tallygate doctor --acls lists the rights"
	case ErrorTopic:
		return "check Prefix and Topic of emit.Config; an aggregator creates its topics when it starts"
	case ErrorTLS:
		return "check TLS of emit.Config, the brokers' certificates, and whether that port has TLS"
	case ErrorReplicas:
		return "start the brokers that are away"
	case ErrorAway:
		return "check Brokers of emit.Config, and the addresses that the brokers advertise"
	}
	return ""
}
