package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/run/kafkaconn/clients"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

func (e *kafkaSide) sarama() *sarama.Config {
	s := sarama.NewConfig()
	s.Version = sarama.V2_8_0_0
	s.ClientID = e.cfg.Prefix + "-doctor"
	// Together less than a check's timeout, so that most errors name what took so long.
	s.Net.DialTimeout = e.cfg.Timeout * 2 / 5
	s.Net.ReadTimeout, s.Net.WriteTimeout = e.cfg.Timeout/2, e.cfg.Timeout/2
	s.Metadata.Retry.Max, s.Admin.Retry.Max = 1, 1
	s.Metadata.Timeout, s.Admin.Timeout = e.cfg.Timeout, e.cfg.Timeout/2
	s.Consumer.Return.Errors = true
	clients.Sarama(e.cfg.Kafka)(s)
	return s
}

// reachKafka connects to Kafka, and then to every broker at the address that it advertises.
func (e *kafkaSide) reachKafka(context.Context) outcome {
	addrs := strings.Join(e.cfg.Kafka.Brokers, ",")
	client, err := sarama.NewClient(e.cfg.Kafka.Brokers, e.sarama())
	if err != nil {
		o := e.cfg.look()
		o.Kafka.Took(health.Kafka{}, err, o.Now)
		return found(judged("kafka", o)...)
	}
	drop := func() { _ = client.Close() }
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		drop()
		return found(fail("kafka", "", "%v", err))
	}
	brokers := client.Brokers()
	slices.SortFunc(brokers, func(a, b *sarama.Broker) int { return int(a.ID() - b.ID()) })
	results, reached := e.reachBrokers(brokers)
	if len(results) == 0 {
		controller := "no controller known"
		if b, err := client.Controller(); err == nil {
			controller = fmt.Sprintf("controller %d", b.ID())
		}
		results = []Result{ok("kafka", "%s at %s, %s", words.Plural(len(brokers), "broker"), addrs, controller)}
	}
	if len(reached) == 0 {
		drop()
		return found(results...)
	}
	return outcome{results: results, drop: drop, keep: func() { e.client, e.admin, e.brokers = client, admin, reached }}
}

func (e *kafkaSide) reachBrokers(brokers []*sarama.Broker) (unreachable []Result, reached []*sarama.Broker) {
	errs := make([]error, len(brokers))
	var wg sync.WaitGroup
	for i, b := range brokers {
		wg.Go(func() {
			if errs[i] = b.Open(e.sarama()); errs[i] == nil || errors.Is(errs[i], sarama.ErrAlreadyConnected) {
				_, errs[i] = b.Connected()
			}
		})
	}
	wg.Wait()
	for i, b := range brokers {
		if errs[i] == nil {
			reached = append(reached, b)
			continue
		}
		unreachable = append(unreachable, fail("kafka",
			"start the broker, or fix its advertised.listeners: every client connects to the address set there",
			"broker %d cannot be reached at %s, which it advertises: %v", b.ID(), b.Addr(), errs[i]))
	}
	return unreachable, reached
}

// request is of a kind that brokers must support in at least this version.
type request struct {
	key     int16
	version int16
	what    string
}

// requiredAPIs are the requests that the aggregator needs. Kafka 2.8 has all of them.
var requiredAPIs = []request{
	{0, 8, "Produce v8 (reasons of refusals)"},
	{1, 4, "Fetch v4 (record batches)"},
	{3, 10, "Metadata v10 (topic ids)"},
	{22, 3, "InitProducerId v3 (an owner that renews its epoch)"},
	{24, 0, "transactional ids"},
	{32, 1, "DescribeConfigs"},
}

func (e *kafkaSide) checkVersions(context.Context) outcome {
	var results []Result
	guesses := map[string][]int32{}
	for _, b := range e.brokers {
		resp, err := b.ApiVersions(&sarama.ApiVersionsRequest{Version: 3, ClientSoftwareName: "tallygate", ClientSoftwareVersion: "doctor"})
		if err == nil && resp.ErrorCode != 0 {
			err = sarama.KError(resp.ErrorCode)
		}
		if err != nil {
			results = append(results, fail("kafka-version", "", "the versions of broker %d cannot be read: %v", b.ID(), err))
			continue
		}
		guess := guessVersion(resp.ApiKeys)
		guesses[guess] = append(guesses[guess], b.ID())
		if missing := missingAPIs(resp.ApiKeys); len(missing) > 0 {
			results = append(results, fail("kafka-version", "upgrade to Kafka 2.8 or later, or to a compatible broker that has these requests",
				"broker %d lacks %s", b.ID(), strings.Join(missing, ", ")))
		}
	}
	if len(results) > 0 {
		return found(results...)
	}
	if len(guesses) > 1 {
		return found(warn("kafka-version", "finish the upgrade: the oldest broker determines the features", "brokers have different versions: %s", describe(guesses)))
	}
	return found(ok("kafka-version", "%s", describe(guesses)))
}

func describe(guesses map[string][]int32) string {
	var parts []string
	for guess, brokers := range guesses {
		part := guess
		if len(guesses) > 1 {
			part += fmt.Sprintf(" (broker %s)", health.Some(brokers))
		}
		parts = append(parts, part)
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

func missingAPIs(keys []sarama.ApiVersionsResponseKey) (missing []string) {
	for _, a := range requiredAPIs {
		if !slices.ContainsFunc(keys, func(k sarama.ApiVersionsResponseKey) bool { return k.ApiKey == a.key && k.MaxVersion >= a.version }) {
			missing = append(missing, a.what)
		}
	}
	return missing
}

// guessVersion derives Kafka's version from the requests that it supports, since no response has
// it. Other brokers support a mix of versions.
func guessVersion(keys []sarama.ApiVersionsResponseKey) string {
	r := kmsg.NewPtrApiVersionsResponse()
	for _, k := range keys {
		x := kmsg.NewApiVersionsResponseApiKey()
		x.ApiKey, x.MinVersion, x.MaxVersion = k.ApiKey, k.MinVersion, k.MaxVersion
		r.ApiKeys = append(r.ApiKeys, x)
	}
	guess := kversion.FromApiVersionsResponse(r).VersionGuess()
	if version, exact := strings.CutPrefix(guess, "v"); exact {
		return "Kafka " + version
	}
	if strings.HasPrefix(guess, "at least v") {
		return "Kafka, " + guess
	}
	return "not a known version of Apache Kafka, but all required requests are supported"
}
