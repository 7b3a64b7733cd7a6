package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// clusterMetrics are the sources of the numbers, by the beginnings of their names.
const clusterMetrics = health.CertificateMetric +
	",tallygate_events_total,tallygate_partition_lag,tallygate_verdicts_total,tallygate_overshoot_events_total," +
	"tallygate_event_to_verdict_seconds"

// nextAfter is the time after which the next aggregator is asked, beside one that is slow.
const nextAfter = 700 * time.Millisecond

// clusterPoll asks the aggregators: first the one that answered last; if that takes long, the others beside it.
type clusterPoll struct {
	apis      []*api.Client
	preferred atomic.Int32
}

func (c *clusterPoll) read(ctx context.Context) (api.Cluster, error) {
	text, err := c.get(ctx, "/v1/cluster?metrics="+url.QueryEscape(clusterMetrics))
	var is api.Cluster
	if err == nil {
		if err = json.Unmarshal(text, &is); err != nil {
			err = fmt.Errorf("read the answer to /v1/cluster: %w", err)
		}
	}
	return is, err
}

// get returns the first answer. If none answers, the error says so of each.
func (c *clusterPoll) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		from int
		text []byte
		err  error
	}
	answers := make(chan answer, len(c.apis))
	first, asked, open := int(c.preferred.Load()), 0, 0
	ask := func() {
		if asked == len(c.apis) {
			return
		}
		i := (first + asked) % len(c.apis)
		asked, open = asked+1, open+1
		go func() {
			text, err := c.apis[i].Get(ctx, path)
			answers <- answer{i, text, err}
		}()
	}
	ask()
	next := time.NewTicker(nextAfter)
	defer next.Stop()
	var errs []error
	for open > 0 {
		select {
		case <-next.C:
			ask()
		case a := <-answers:
			open--
			if a.err == nil {
				c.preferred.Store(int32(a.from)) //nolint:gosec // one of a few addresses
				return a.text, nil
			}
			errs = append(errs, fmt.Errorf("%s: %w", strings.TrimPrefix(strings.TrimPrefix(c.apis[a.from].Base(), "http://"), "https://"),
				reason(a.err)))
			ask()
		}
	}
	return nil, errors.Join(errs...)
}

// reason is an error without the parts that say where it was, which its reader knows.
func reason(err error) error {
	if refused, ok := errors.AsType[*api.Refusal](err); ok {
		return refused
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("no answer in time")
	}
	return httpjson.Cause(err)
}

// exemptions asks for those that there are. Only how many they are is kept.
func (c *clusterPoll) exemptions(ctx context.Context, now time.Time) (health.Exemptions, error) {
	list, err := api.Decode[api.Exemptions](c.get(ctx, "/v1/exemptions"))
	if err != nil {
		return health.Exemptions{}, err
	}
	is := health.Exemptions{All: len(list.Exemptions)}
	for _, e := range list.Exemptions {
		until := e.Until.Time()
		if left := until.Sub(now); e.Until != event.NoTime && left > 0 && left < time.Hour {
			is.Ending++
			if is.Next.IsZero() || until.Before(is.Next) {
				is.Next = until
			}
		}
	}
	return is, nil
}

// enforced asks decision servers for what their beats do not say. Their addresses come from Redis, and whoever can
// write there must not get the console's own token: the client shows one for enforcers, if any. What refuses
// or fails is left out.
func enforced(ctx context.Context, enforcers *apiclient.Enforcers, beats []presence.Beat) health.Enforced {
	const toDenial, blocked = "tallygate_event_to_enforced_seconds", "tallygate_rule_blocked_keys"
	type answer struct {
		from string
		api.Status
	}
	answers := make(chan answer, mostEnforcers)
	asked := 0
	for i := range beats {
		if b := &beats[i]; b.URL != "" && !b.Gone() && asked < mostEnforcers {
			asked++
			go func() {
				var is api.Status
				if text, err := enforcers.Get(ctx, b.URL, "/v1/status?metrics="+toDenial+","+blocked+","+health.CertificateMetric); err == nil {
					_ = json.Unmarshal(text, &is) // what is none has no samples
				}
				answers <- answer{b.Name, is}
			}()
		}
	}
	all := health.Enforced{Blocked: -1}
	for range asked {
		is := <-answers
		all.Latency = append(all.Latency, is.Metrics[toDenial]...)
		all.Certificates = append(all.Certificates, health.Certificates{Program: is.from, Expiry: is.Metrics[health.CertificateMetric]})
		if samples, said := is.Metrics[blocked]; said {
			sum := 0
			for _, s := range samples {
				sum += int(s.Value)
			}
			all.Blocked = max(all.Blocked, sum)
		}
	}
	return all
}
