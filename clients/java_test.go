package clients

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// java is how to run an example of the client for Java. It builds the client, and so runs its own tests, which
// read testdata/vectors. These tests need Java and Maven.
func java(t *testing.T) []string {
	t.Helper()
	servers.Nightly(t, "clients")
	return []string{"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dlogback.configurationFile=quiet.xml", "-cp", script(t, "java.sh")}
}

func TestJavaPlacesByMurmur2(t *testing.T) {
	brokers := servers.Kafka(t)
	emits(t, brokers, murmur2, append(java(t), "events.Emit")...)
}

func TestJavaDoesNotOneTooMany(t *testing.T) {
	admits(t, append(java(t), "events.Admit")...)
}

const ordersRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - {name: orders-v2-secret, public: orders, match: {api: get.orders.id}, limit: 5, per: 1m, then: {block: 1m}}
`

// A service of Spring Boot, as docs/spring.md has it, limits users by what it emitted itself.
func TestSpringBootLimits(t *testing.T) {
	command, in, listen := java(t), install(t, ordersRules), servers.FreeAddr(t)
	_, port, _ := strings.Cut(listen, ":")
	args := slices.Concat(command, []string{"shop.Shop", "--server.address=127.0.0.1", "--server.port=" + port, "--tallygate.url=" + in.decision,
		"--tallygate.timeout=5s", "--tallygate.kafka.brokers=" + in.brokers, "--tallygate.kafka.topic=" + in.prefix + ".events"})
	launch(t, false, exec.Command(args[0], args[1:]...)) // Java ends with 143
	ordersAreLimited(t, in, listen, "shop")
}

// What docs/spring.md shows is what the tests above build and run.
func TestPageOfJavaShowsTheExamples(t *testing.T) {
	const examples = "java/example/src/main/"
	shows(t, "spring.md", "java|yaml", 4, examples+"java/shop/Shop.java", examples+"java/shop/Callers.java", examples+"java/events/Admit.java",
		examples+"java/events/Emit.java", examples+"resources/application.yaml")
}
