package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// grant is the rights that a principal needs on one resource of Kafka.
type grant struct {
	kind     sarama.AclResourceType // topic, group, transactional id or cluster
	name     string
	prefixed bool // name is a prefix
	ops      []sarama.AclOperation
}

const (
	read            = sarama.AclOperationRead
	write           = sarama.AclOperationWrite
	create          = sarama.AclOperationCreate
	remove          = sarama.AclOperationDelete
	describeConfigs = sarama.AclOperationDescribeConfigs
)

// aggregatorGrants are all rights that an aggregator needs, its publisher included. Read and Write
// imply Describe. There is no right on the cluster: the right to write to a topic includes writing
// with a producer id. Create is needed while a topic is missing, and Write on the events to send
// dead letters again.
func aggregatorGrants(n topics.Names) []grant {
	topic := func(name string, ops ...sarama.AclOperation) grant {
		return grant{sarama.AclResourceTopic, name, false, append(ops, describeConfigs, create)}
	}
	return []grant{
		topic(n.Events, read, write), topic(n.Loop, read, write), topic(n.Table, read, write), topic(n.Verdicts, read, write),
		topic(n.Audit, write), topic(n.Rules, read, write), topic(n.DeadLetters, write),
		{sarama.AclResourceGroup, n.Group, false, []sarama.AclOperation{read}},
		transactionalGrant(n),
	}
}

// transactionalGrant is for the owners of all partitions.
func transactionalGrant(n topics.Names) grant {
	return grant{sarama.AclResourceTransactionalID, n.Group + "-", true, []sarama.AclOperation{write}}
}

// scratchGrant is the right for the test of fencing, in addition to the aggregator's transactional ids.
func scratchGrant(n topics.Names) grant {
	return grant{sarama.AclResourceTopic, n.Group + ".doctor-", true, []sarama.AclOperation{create, remove, read, write}}
}

// brokerGrant is needed to read the brokers' settings.
func brokerGrant() grant {
	return grant{sarama.AclResourceCluster, "", false, []sarama.AclOperation{describeConfigs}}
}

func toolGrants(n topics.Names) (all []grant) {
	for _, name := range []string{n.Verdicts, n.Audit, n.DeadLetters} {
		all = append(all, grant{sarama.AclResourceTopic, name, false, []sarama.AclOperation{read}})
	}
	return all
}

// consoleGrants are those of `tallygate console`: beside what the tools read, how far the topics and the group are.
func consoleGrants(n topics.Names) []grant {
	return append(toolGrants(n),
		grant{sarama.AclResourceTopic, n.Events, false, []sarama.AclOperation{sarama.AclOperationDescribe}},
		grant{sarama.AclResourceGroup, n.Group, false, []sarama.AclOperation{sarama.AclOperationDescribe}})
}

// replayGrants are for `tallygate console` where operators replay past events in it. It reads partitions without a
// consumer group.
func replayGrants(n topics.Names) []grant {
	return []grant{{sarama.AclResourceTopic, n.Events, false, []sarama.AclOperation{read}}}
}

// notifyGrants are the rights of tallygate notify: the audit, and a group for each of its receivers.
func notifyGrants(n topics.Names) []grant {
	return []grant{
		{sarama.AclResourceTopic, n.Audit, false, []sarama.AclOperation{read}},
		{sarama.AclResourceGroup, n.Group + "-notify.", true, []sarama.AclOperation{read}},
	}
}

func producerGrants(n topics.Names) []grant {
	return []grant{{sarama.AclResourceTopic, n.Events, false, []sarama.AclOperation{write}}}
}

// command is the command line that creates the grant with Kafka's own tool.
func (g grant) command(bootstrap, principal string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "kafka-acls.sh --bootstrap-server %s --add --allow-principal '%s'", bootstrap, strings.ReplaceAll(principal, "'", `'\''`))
	for _, op := range g.ops {
		fmt.Fprintf(&b, " --operation %s", op.String())
	}
	switch g.kind {
	case sarama.AclResourceTopic:
		fmt.Fprintf(&b, " --topic %s", g.name)
	case sarama.AclResourceGroup:
		fmt.Fprintf(&b, " --group %s", g.name)
	case sarama.AclResourceTransactionalID:
		fmt.Fprintf(&b, " --transactional-id %s", g.name)
	case sarama.AclResourceCluster:
		b.WriteString(" --cluster")
	}
	if g.prefixed {
		b.WriteString(" --resource-pattern-type prefixed")
	}
	return b.String()
}

// toolAddress returns the arguments of Kafka's own tools: the brokers and, if these ask for TLS or a password, the
// file with an administrator's credentials. Without it the tools wait until they give up.
func toolAddress(k *kafkaconn.Kafka) string {
	brokers := strings.Join(k.Brokers, ",")
	if k.Secured() {
		return brokers + " --command-config admin.properties"
	}
	return brokers
}

const anyPrincipal = "User:NAME"

func (e *kafkaSide) aclCommand(g grant) string {
	return g.command(toolAddress(e.cfg.Kafka), anyPrincipal)
}

// writeACLs lists the commands that give each program the rights that it needs, and no others.
func writeACLs(w io.Writer, bootstrap, prefix, principal string) {
	n := topics.NamesOf(prefix)
	if strings.Contains(bootstrap, " --command-config ") {
		fmt.Fprintln(w, "# admin.properties: security.protocol, sasl.jaas.config, ssl.truststore.location … of one who may do this")
	}
	list := func(title string, principal string, grants ...grant) {
		fmt.Fprintf(w, "# %s\n", title)
		for _, g := range grants {
			fmt.Fprintln(w, g.command(bootstrap, principal))
		}
	}
	list("the aggregator, and the publisher in it (Create: until all topics are there)", principal, aggregatorGrants(n)...)
	list("tallygate doctor, beside these: it tries the fence on a scratch topic, and reads the brokers' settings", principal, scratchGrant(n), brokerGrant())
	list("applications that emit events", "User:APPLICATION", producerGrants(n)...)
	list("tallygate blocks, audit and dead-letters; the last with --send --direct also as applications that emit", "User:TOOL", toolGrants(n)...)
	list("tallygate console; its doctor tells what of an aggregator's it may not see", "User:CONSOLE", consoleGrants(n)...)
	list("tallygate console, if operators are to replay past events in it; it has no consumer group", "User:CONSOLE", replayGrants(n)...)
	list("tallygate notify: the audit, and a group for each receiver", "User:NOTIFY", notifyGrants(n)...)
	fmt.Fprintln(w, "# enforcers need nothing in Kafka: they read Redis; with --emit-admitted, --emit-denied or --usage-… also as applications that emit")
	enforcers := " ~" + presence.Key(prefix)
	writer := append(rightsOf(scriptCommands), "config|get", "hgetall") // whether this Redis evicts; the enforcers' kill switches
	fmt.Fprintf(w, "\n# in Redis, by redis-cli: the publisher in the aggregators\n%s\n", redisUser("tallygate", prefix, "~", enforcers, writer))
	fmt.Fprintln(w, "# enforcers, the console, and services that follow the blocklist themselves (before Redis 7.0: ~ instead of %R~, and neither +hset nor +hdel,")
	fmt.Fprintf(w, "# by which they could change the blocklist: operators then do not see them)\n%s\n",
		redisUser("tallygate-enforcer", prefix, "%R~", enforcers, rightsOf(feedCommands, presenceCommands)))
	fmt.Fprintf(w, "# tallygate doctor\n%s\n", redisUser("tallygate-doctor", prefix, "~", enforcers, append(rightsOf(scriptCommands, feedCommands, presenceCommands), doctorCommands...)))
	fmt.Fprintln(w, "# where rules are strict: the publisher and the doctor in addition, and services that ask for permits (a decision server also: +hscan +xread)")
	for _, user := range []string{"tallygate", "tallygate-doctor"} {
		fmt.Fprintf(w, "ACL SETUSER %s +%s\n", user, strings.Join(rightsOf(strictCommands), " +"))
	}
	fmt.Fprintf(w, "%s (%s +%s)\n", redisUser("tallygate-permits", prefix, "~", "", permitCommands), enforcers[1:], strings.Join(rightsOf(presenceCommands), " +"))
	fmt.Fprintf(w, "# each of them, where Redis is a Cluster, also: +%s\n", strings.Join(clusterCommands, " +"))
}
