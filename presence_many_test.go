package tallygate_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// Fifty services on one Redis are all seen, under their names. What that costs Redis is bounded: two commands
// and a thousand bytes per service and beat.
func TestFiftyServicesAreSeen(t *testing.T) {
	server := servers.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	const services = 50
	for i := range services {
		open(t, tallygate.Config{RedisClient: client, Name: fmt.Sprintf("service-%02d", i)})
	}
	var all []presence.Beat
	testrun.Eventually(t, "all are seen", func() bool {
		var err error
		all, err = presence.List(t.Context(), client, "")
		return err == nil && len(all) == services
	})
	bytes := 0
	for i, b := range all {
		if b.Name != fmt.Sprintf("service-%02d", i) {
			t.Errorf("the %d-th is %s", i, b.Name)
		}
	}
	for _, value := range client.HGetAll(t.Context(), presence.Key("")).Val() {
		bytes = max(bytes, len(value))
	}
	if bytes == 0 || bytes > 700 {
		t.Errorf("a beat has %d bytes", bytes)
	}
	calls := func() (n int) {
		for line := range strings.Lines(client.Info(context.Background(), "commandstats").Val()) {
			for _, command := range []string{"cmdstat_hset:calls=", "cmdstat_time:calls="} {
				if rest, ok := strings.CutPrefix(line, command); ok {
					count, _, _ := strings.Cut(rest, ",")
					k, err := strconv.Atoi(count)
					if err != nil {
						t.Fatal(err)
					}
					n += k
				}
			}
		}
		return n
	}
	began, first := time.Now(), calls()
	const beats = 2
	testrun.Eventually(t, "all have beaten again", func() bool { return calls() >= first+beats*2*services })
	if took := time.Since(began); took < presence.Every/2 {
		t.Errorf("%d services sent %d commands in %v", services, calls()-first, took)
	}
	t.Logf("a beat has %d bytes", bytes)
}
