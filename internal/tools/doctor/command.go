package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/run/redisconn"
)

const usage = `
tallygate doctor checks Kafka, its topics and rights, Redis, the clocks, the aggregators' group and
the blocklist, and says how to fix what is wrong. Run it with an aggregator's options and
credentials: before the first start, and whenever something looks wrong.

  tallygate doctor --kafka kafka:9092 --redis redis:6379 --rules rules.yaml
  tallygate doctor --json | jq '.results[] | select(.status == "fail")'
  tallygate doctor --acls --principal User:tallygate

To test that brokers refuse an owner that was replaced, it creates a topic PREFIX.doctor-RANDOM, and
deletes it afterwards. With --no-write it only reads. The exit status is 0 if nothing failed, else 1.
`

const name = "tallygate doctor"

// Command is `tallygate doctor`: it returns the exit status.
func Command(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	c, err := parse(args, stdout, getenv)
	if err != nil {
		return ops.Exit(stderr, name, err)
	}
	if c.acls {
		writeACLs(stdout, toolAddress(c.Kafka), c.Prefix, c.principal)
		return ops.ExitOK
	}
	logging.Disable() // go-redis logs every attempt to standard error
	report, err := c.examine(ctx, stdout)
	if c.Redis != nil {
		err = errors.Join(err, c.Redis.Close())
	}
	if err != nil {
		return ops.Exit(stderr, name, err)
	}
	if !report.Well {
		return ops.ExitError
	}
	return ops.ExitOK
}

type command struct {
	Config
	json, acls bool
	principal  string
}

func parse(args []string, stdout io.Writer, getenv func(string) string) (*command, error) {
	o := ops.NewOptions(name, usage, stdout, getenv)
	kafka, rds := kafkaconn.NewOptions(o), redisconn.NewOptions(o)
	c := &command{}
	o.StringVar(&c.Prefix, "prefix", "tallygate", "`name` that all topics, the group and the Redis keys begin with")
	o.StringVar(&c.Rules, "rules", "", "rule `FILE`: are states and blocks of these rules too large for the topics?")
	o.IntVar(&c.Shards, "shards", 1, "`number` of shards of the blocklist, as the aggregators have it")
	brokerTime := o.String("broker-time", "append", "append: records carry the broker's time; create: take the producers' `time`")
	o.IntVar(&c.Partitions, "partitions", 0, "`number` of partitions of new topics, as the aggregators have it (0: 12)")
	o.IntVar(&c.Replication, "replication", 0, "`number` of replicas of new topics, as the aggregators have it (0: 3, or the number of brokers if lower)")
	o.BoolVar(&c.NoWrite, "no-write", false, "only look: no scratch topic in Kafka, no scratch keys in Redis")
	o.DurationVar(&c.Timeout, "timeout", 5*time.Second, "`time` that a check waits for a server; some ask up to four times")
	o.DurationVar(&c.SessionTimeout, "session-timeout", 10*time.Second, "`time` without a heartbeat after which partitions go to others, as the aggregators have it")
	o.DurationVar(&c.MaxStaleness, "max-staleness", 30*time.Second, "`time` that the blocklist may be behind before it is stale, as the enforcers have it")
	o.BoolVar(&c.json, "json", false, "write the result as one JSON object")
	o.BoolVar(&c.acls, "acls", false, "only print what each program must be allowed, as kafka-acls.sh commands and ACL SETUSER lines; nothing is connected")
	o.StringVar(&c.principal, "principal", "User:tallygate", "`principal` of the aggregators, for --acls")
	if err := o.ParseOnly(args); err != nil {
		return nil, err
	}
	var err, timeErr, redisErr error
	c.Kafka, err = kafka.Build()
	if c.ProducerTime = *brokerTime == "create"; !c.ProducerTime && *brokerTime != "append" {
		timeErr = fmt.Errorf("--broker-time %q: append or create", *brokerTime)
	}
	if err := errors.Join(err, timeErr); err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	if err := c.validate(); err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	if rds.Given() && !c.acls {
		if c.Redis, redisErr = rds.Build(); redisErr != nil {
			return nil, &ops.UsageError{Err: redisErr}
		}
	}
	return c, nil
}

func (c *command) examine(ctx context.Context, stdout io.Writer) (*Report, error) {
	if c.json {
		report, err := Run(ctx, c.Config, func(Result) {})
		if err != nil {
			return nil, err
		}
		out := json.NewEncoder(stdout)
		out.SetEscapeHTML(false)
		return report, out.Encode(report)
	}
	report, err := Run(ctx, c.Config, func(r Result) { writeResult(stdout, r) })
	if err == nil {
		writeSummary(stdout, report)
	}
	return report, err
}
