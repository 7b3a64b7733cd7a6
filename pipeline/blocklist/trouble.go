package blocklist

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrAuth is returned by the Run of a Publisher or a Feed whose Redis refuses its user or password from the
// beginning. Once Redis has answered, a refusal is retried like any other trouble: passwords are changed.
var ErrAuth = errors.New("blocklist: Redis refuses the user or the password")

// Trouble is what is the matter with Redis.
type Trouble string

// The kinds of Trouble.
const (
	TroubleAuth   Trouble = "auth"        // it refuses the user, the password, or a command
	TroubleMemory Trouble = "memory"      // its memory is full, and it refuses to write
	TroubleOther  Trouble = "other"       // it answered with another error, such as that it is loading its data
	TroubleAway   Trouble = "unreachable" // it did not answer
)

func troubleOf(err error) Trouble {
	var answer redis.Error
	switch {
	case redis.IsAuthError(err), redis.IsPermissionError(err):
		return TroubleAuth
	case redis.IsOOMError(err), strings.Contains(err.Error(), "OOM command not allowed"): // a script's line is before it
		return TroubleMemory
	case errors.As(err, &answer):
		return TroubleOther
	}
	return TroubleAway
}

// advice says what to do about it; "" when waiting may be all.
func (t Trouble) advice() string {
	switch t {
	case TroubleAuth:
		return "check the user, the password and the user's rights in Redis"
	case TroubleMemory:
		return "raise Redis' maxmemory or move other data out of it; until then no new verdict reaches the enforcers, and none is lost"
	}
	return ""
}
