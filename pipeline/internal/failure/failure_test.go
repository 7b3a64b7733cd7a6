package failure

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// TestARightThatAScriptLacks: a real Redis says that in other words than to a command.
func TestARightThatAScriptLacks(t *testing.T) {
	server := servers.StartRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "limited", "on", ">secret", "~*", "+eval", "+get").Err(); err != nil {
		t.Fatal(err)
	}
	limited := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "limited", Password: "secret"})
	defer limited.Close()
	for name, err := range map[string]error{
		"in a script": limited.Eval(t.Context(), "return redis.call('SET', KEYS[1], '1')", []string{"a"}).Err(),
		"itself":      limited.Set(t.Context(), "a", "1", 0).Err(),
	} {
		if err == nil || Of(err) != Auth {
			t.Errorf("%s: %v is %s", name, err, Of(err))
		}
	}
}
