package topics

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// hedgeAfter is the time after which the next broker is asked as well. It only has to be well below a group's session
// timeout: the first answer counts, from whichever broker.
const hedgeAfter = 300 * time.Millisecond

// askAny asks one broker after the other a question that each can answer, and returns the first
// answer. A broker that is gone, or that hangs, costs a moment but is no failure. If no known
// broker answers, askAny refreshes the list of brokers, also from the bootstrap addresses, and asks
// all once more. Several questions may be in flight at once, and each makes its own request.
//
// sarama's admin client sends such questions to the broker that it has cached as the controller,
// even after that broker has failed.
func askAny[T any](client sarama.Client, question func(*sarama.Broker) (T, error)) (T, error) {
	answer, err := askKnown(client, question)
	if err == nil {
		return answer, nil
	}
	if refreshed := client.RefreshMetadata(); refreshed != nil {
		return answer, errors.Join(err, fmt.Errorf("refresh the list of brokers: %w", refreshed))
	}
	return askKnown(client, question)
}

// askKnown asks the brokers of the client's list. Those that have not answered when another did run
// into their own timeouts.
func askKnown[T any](client sarama.Client, question func(*sarama.Broker) (T, error)) (T, error) {
	type reply struct {
		answer T
		err    error
	}
	var none T
	brokers := client.Brokers()
	if len(brokers) == 0 {
		return none, sarama.ErrOutOfBrokers
	}
	slices.SortFunc(brokers, func(a, b *sarama.Broker) int { return int(a.ID() - b.ID()) })
	replies := make(chan reply, len(brokers))
	asked, failed := 0, []error(nil)
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			if asked == len(brokers) {
				continue // the last one has only its own deadline
			}
			go func(b *sarama.Broker) {
				answer, err := askOne(client, b, question)
				replies <- reply{answer, err}
			}(brokers[asked])
			asked++
			next.Reset(hedgeAfter)
		case r := <-replies:
			if r.err == nil {
				return r.answer, nil
			}
			if failed = append(failed, r.err); len(failed) == len(brokers) {
				return none, errors.Join(failed...)
			}
			if asked < len(brokers) {
				next.Reset(0)
			}
		}
	}
}

func askOne[T any](client sarama.Client, b *sarama.Broker, question func(*sarama.Broker) (T, error)) (T, error) {
	var none T
	if err := b.Open(client.Config()); err != nil && !errors.Is(err, sarama.ErrAlreadyConnected) {
		return none, fmt.Errorf("connect to broker %s: %w", b.Addr(), err)
	}
	answer, err := question(b)
	if err != nil {
		// sarama closes broken connections itself, but continues to use one whose answer timed
		// out, which never works again.
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			_ = b.Close()
		}
		return none, fmt.Errorf("ask broker %s: %w", b.Addr(), err)
	}
	return answer, nil
}

// metadataOf returns what some reachable broker knows of the topics.
func metadataOf(client sarama.Client, names []string) ([]*sarama.TopicMetadata, error) {
	resp, err := askAny(client, func(b *sarama.Broker) (*sarama.MetadataResponse, error) {
		return b.GetMetadata(sarama.NewMetadataRequest(client.Config().Version, names))
	})
	if err != nil {
		return nil, fmt.Errorf("describe topics: %w", err)
	}
	return resp.Topics, nil
}

// settingsOf returns the settings of topics, as some reachable broker knows them.
func settingsOf(client sarama.Client, names []string) ([]*sarama.ResourceResponse, error) {
	resp, err := askAny(client, func(b *sarama.Broker) (*sarama.DescribeConfigsResponse, error) {
		// One per broker: sarama notes the broker's version in it.
		req := &sarama.DescribeConfigsRequest{Version: 2}
		for _, name := range names {
			req.Resources = append(req.Resources, &sarama.ConfigResource{Type: sarama.TopicResource, Name: name})
		}
		return b.DescribeConfigs(req)
	})
	if err != nil {
		return nil, fmt.Errorf("describe the topics' settings: %w", err)
	}
	return resp.Resources, nil
}
