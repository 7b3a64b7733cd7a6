package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const (
	// A fence lasts as long as brokers remember the producer. An owner that cannot write for twelve
	// of its hourly heartbeats treats itself as replaced.
	minProducerExpiry = 12 * time.Hour
	// Owners renew their epoch daily.
	minTransactionalExpiry = 24 * time.Hour
)

func (e *kafkaSide) checkBrokerSettings(context.Context) outcome {
	var results []Result
	seen := map[string]bool{}
	for _, b := range e.brokers {
		settings, err := e.brokerSettings(b)
		switch {
		case refused(err):
			return found(warn("kafka-settings", e.aclCommand(brokerGrant()),
				"no right to read the brokers' settings: make sure that producer.id.expiration.ms is more than 12 hours and transactional.id.expiration.ms more than a day"))
		case err != nil:
			return found(fail("kafka-settings", "", "the settings of broker %d cannot be read: %v", b.ID(), err))
		}
		for name := range settings {
			seen[name] = true
		}
		results = append(results, e.judgeBroker(b.ID(), settings)...)
	}
	if len(results) == 0 && len(seen) == 0 {
		return found(skip("kafka-settings", "the brokers do not return their settings"))
	}
	if len(results) == 0 {
		results = []Result{ok("kafka-settings", "producer ids are kept long enough")}
	}
	return found(worst(results)...)
}

func (e *kafkaSide) brokerSettings(b *sarama.Broker) (map[string]string, error) {
	answers, err := e.admin.DescribeConfigs([]*sarama.ConfigResource{{
		Type: sarama.BrokerResource, Name: strconv.Itoa(int(b.ID())),
		ConfigNames: []string{"producer.id.expiration.ms", "transactional.id.expiration.ms",
			"transaction.state.log.replication.factor", "offsets.topic.replication.factor"},
	}}, sarama.DescribeConfigsOptions{})
	if err != nil {
		return nil, err
	}
	settings := map[string]string{}
	for _, a := range answers {
		if a.ErrorCode != 0 {
			return nil, a.ErrorCode
		}
		for _, c := range a.Configs {
			settings[c.Name] = c.Value
		}
	}
	return settings, nil
}

func (e *kafkaSide) judgeBroker(id int32, settings map[string]string) (results []Result) {
	expiry := func(name string, least time.Duration, why string) {
		ms, err := strconv.ParseInt(settings[name], 10, 64)
		// Older brokers have no such setting: there it is a week.
		if err != nil || time.Duration(ms)*time.Millisecond > least {
			return
		}
		results = append(results, fail("kafka-settings",
			fmt.Sprintf("set %s=%d in the brokers' server.properties, and restart them one by one", name, 2*least.Milliseconds()),
			"broker %d: %s is %s, want more than %s: %s", id, name, human(time.Duration(ms)*time.Millisecond), human(least), why))
	}
	expiry("producer.id.expiration.ms", minProducerExpiry, "after that a broker accepts a fenced owner again, and repeated batches")
	expiry("transactional.id.expiration.ms", minTransactionalExpiry, "after that owners lose their producer id")
	for _, name := range []string{"transaction.state.log.replication.factor", "offsets.topic.replication.factor"} {
		if n, err := strconv.Atoi(settings[name]); err == nil && n < 3 && len(e.brokers) >= 3 {
			topic := "__consumer_offsets"
			if strings.HasPrefix(name, "transaction") {
				topic = "__transaction_state"
			}
			results = append(results, warn("kafka-settings",
				fmt.Sprintf("raise it before %s is created, or reassign that topic's partitions to three replicas (kafka-reassign-partitions.sh)", topic),
				"broker %d: %s is %d: while that broker is down, partitions cannot be taken over", id, name, n))
		}
	}
	return results
}
