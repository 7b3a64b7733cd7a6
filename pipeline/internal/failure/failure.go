// Package failure tells what is wrong with Redis, in a word and with advice, and logs an
// outage once.
package failure

import (
	"crypto/tls"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrAuth is the error when Redis refuses a publisher's user or password from the beginning. Once it
// has answered, a refusal is retried like any other error: passwords are changed.
var ErrAuth = errors.New("blocklist: Redis refuses the user or the password")

// ErrShards is the error when the blocklist in Redis has another number of shards than this program
// was started with.
var ErrShards = errors.New("blocklist: another number of shards")

// ErrNothing is the error of a reader when no publisher has written anything yet.
var ErrNothing = errors.New("nothing has been published there yet")

// Kind classifies a failure.
type Kind string

// The kinds.
const (
	Auth   Kind = "auth"   // it refuses the user, the password, or a command
	Memory Kind = "memory" // its memory is full, and it refuses to write
	// It answered with another error, such as that it is loading its data.
	Other Kind = "other"
	// It answered, and one side refuses the other's certificate or protocol.
	TLS     Kind = "tls"
	Shards  Kind = "shards"      // what is there has another number of shards
	Away    Kind = "unreachable" // it did not answer
	Replica Kind = "replica"     // it is one, and cannot write
	Old     Kind = "old"         // its version; only strict limits ask for a newer one
)

// Refuses reports whether Redis lets this program not in, or not do what it has to.
func (k Kind) Refuses() bool { return k == Auth || k == TLS }

// Of returns the kind of an error.
func Of(err error) Kind {
	var answer redis.Error
	switch {
	case errors.Is(err, ErrShards):
		return Shards
	case redis.IsAuthError(err), redis.IsPermissionError(err), strings.Contains(err.Error(), "can't run this command"):
		// The last one is what a script is told.
		return Auth
	case redis.IsOOMError(err), strings.Contains(err.Error(), "OOM command not allowed"):
		// A script's error begins with its line.
		return Memory
	case redis.IsReadOnlyError(err), strings.Contains(err.Error(), "READONLY You can't write"):
		return Replica
	case errors.As(err, &answer):
		return Other
	case isTLS(err):
		return TLS
	}
	return Away
}

// isTLS reports whether a handshake failed. The alerts that the other side sends, such as that it
// wants a certificate, have no type that is exported, and clients of Sentinel and Cluster hand on
// texts only.
func isTLS(err error) bool {
	var record tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &record) || errors.As(err, &certificate) {
		return true
	}
	return strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "x509: ")
}

// topic names the errors that are told once an outage. Who mends a password, and then meets a missing right, is told.
func (k Kind) topic(err error) string {
	var answer redis.Error
	if k != Auth || !errors.As(err, &answer) {
		return string(k)
	}
	code, _, _ := strings.Cut(answer.Error(), " ")
	return code
}

// advice tells operators what to do about it; "" when waiting may be all.
func (k Kind) advice() string {
	switch k {
	case Auth:
		return "check the user, the password and the user's rights in Redis"
	case TLS:
		return "check the certificates: Redis' against the CA that is trusted here, its name, its end, and this program's own against Redis' CA; and whether that port has TLS"
	case Replica:
		return "give the address of the primary, or of Sentinel or Cluster, which name it"
	case Old:
		return "upgrade Redis, or take `strict` out of the rules; without permits, requests under strict rules are answered as in doubt"
	case Shards:
		return "give all programs the number of shards that the blocklist has"
	case Memory:
		return "raise Redis' maxmemory or move other data out of it; until then no new verdict reaches the enforcers, and none is lost"
	}
	return ""
}
