package blocklist

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrAuth is returned by the Run of a Publisher or a Feed whose Redis refuses its user or password from the
// beginning. Once Redis has answered, a refusal is retried like any other trouble: passwords are changed.
var ErrAuth = errors.New("blocklist: Redis refuses the user or the password")

// ErrShards is the error when the blocklist in Redis has another number of shards than a Publisher or a Feed was told. A Publisher would
// split it in two, and a Feed would miss a part of the blocked: both refuse. A Publisher that finds that at its start returns it.
var ErrShards = errors.New("blocklist: another number of shards")

// shardsDiffer says which numbers differ.
func shardsDiffer(key string, there, here int) error {
	return fmt.Errorf("%w: by %s there are %d, and this program was told %d", ErrShards, key, there, here)
}

// Trouble is what is the matter with Redis.
type Trouble string

// The kinds of Trouble.
const (
	TroubleAuth   Trouble = "auth"        // it refuses the user, the password, or a command
	TroubleMemory Trouble = "memory"      // its memory is full, and it refuses to write
	TroubleOther  Trouble = "other"       // it answered with another error, such as that it is loading its data
	TroubleTLS    Trouble = "tls"         // it answered, and one side refuses the other's certificate or protocol
	TroubleShards Trouble = "shards"      // what is there has another number of shards
	TroubleAway   Trouble = "unreachable" // it did not answer
)

// Troubles are all kinds of Trouble.
var Troubles = []Trouble{TroubleAuth, TroubleMemory, TroubleTLS, TroubleShards, TroubleOther, TroubleAway}

func troubleOf(err error) Trouble {
	var answer redis.Error
	switch {
	case errors.Is(err, ErrShards):
		return TroubleShards
	case redis.IsAuthError(err), redis.IsPermissionError(err):
		return TroubleAuth
	case redis.IsOOMError(err), strings.Contains(err.Error(), "OOM command not allowed"): // a script's line is before it
		return TroubleMemory
	case errors.As(err, &answer):
		return TroubleOther
	case isTLS(err):
		return TroubleTLS
	}
	return TroubleAway
}

// isTLS reports whether a handshake failed. The alerts that the other side sends, such as that it wants a certificate, have no type
// that is exported, and clients of Sentinel and Cluster hand on texts only.
func isTLS(err error) bool {
	var record tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &record) || errors.As(err, &certificate) {
		return true
	}
	return strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "x509: ")
}

// advice says what to do about it; "" when waiting may be all.
func (t Trouble) advice() string {
	switch t {
	case TroubleAuth:
		return "check the user, the password and the user's rights in Redis"
	case TroubleTLS:
		return "check the certificates: Redis' against the CA that is trusted here, its name, its end, and this program's own against Redis' CA; and whether that port has TLS"
	case TroubleShards:
		return "give all programs the number of shards that the blocklist has"
	case TroubleMemory:
		return "raise Redis' maxmemory or move other data out of it; until then no new verdict reaches the enforcers, and none is lost"
	}
	return ""
}
