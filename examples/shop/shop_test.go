package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")) // sarama's metrics have one for good
}

const patience = time.Minute

// town is an installation: an aggregator with the shop's rules, and all services, each with an
// address.
type town struct {
	t      *testing.T
	shops  map[string]string
	client *http.Client
}

func newTown(t *testing.T, kafka, redisAddr, prefix string) *town {
	t.Helper()
	town := &town{t: t, shops: map[string]string{}, client: &http.Client{Transport: &http.Transport{}, Timeout: patience}}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		stop()
		running.Wait()
		town.client.CloseIdleConnections()
	})
	var log bytes.Buffer
	running.Go(func() {
		args := []string{"--kafka", kafka, "--redis", redisAddr, "--rules", "rules.yaml", "--prefix", prefix, "--partitions", "4",
			"--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--log-level", "error"}
		if status := aggregator.Command(ctx, args, io.Discard, &log, testrun.NoEnv); status != 0 {
			t.Errorf("the aggregator ends with %d: %s", status, &log)
		}
	})
	for name := range services {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		town.shops[name] = l.Addr().String()
		running.Go(func() {
			if err := run(ctx, name, l, kafka, redisAddr, prefix); err != nil {
				t.Errorf("%s ends with %v", name, err)
			}
		})
	}
	return town
}

// visit returns the status, and in how many seconds to come back.
func (town *town) visit(service, method, path, user string) (status, after int) {
	town.t.Helper()
	req, err := http.NewRequest(method, "http://"+town.shops[service]+path, nil)
	if err != nil {
		town.t.Fatal(err)
	}
	req.Header.Set("X-User", user)
	resp, err := town.client.Do(req)
	if err != nil {
		town.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	after, _ = strconv.Atoi(resp.Header.Get("Retry-After"))
	return resp.StatusCode, after
}

func (town *town) eventually(what string, ok func() bool) {
	town.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			town.t.Fatalf("never: %s", what)
		}
	}
}

// Searching and suggesting count together; discounts count by outcome, and deny orders with a
// discount only, in the service that takes them.
func TestShop(t *testing.T) {
	t.Parallel()
	stack, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{}) // it ends after its users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stack.Close)
	town := newTown(t, stack.Kafka[0], stack.Redis, "tallygate")

	searches := 0
	town.eventually("a suggestion is denied after searches and suggestions", func() bool {
		path := []string{"/search", "/suggest"}[searches%2]
		status, after := town.visit("search", http.MethodGet, path, "42")
		if status == http.StatusOK {
			searches++
			return false
		}
		if status != http.StatusTooManyRequests || after < 1 || after > 30 {
			t.Fatalf("%d, come back in %d s", status, after)
		}
		return true
	})
	if searches < 6 {
		t.Errorf("%d visits were allowed; the limit is five, and the sixth exceeds it", searches)
	}
	if status, _ := town.visit("search", http.MethodGet, "/search", "43"); status != http.StatusOK {
		t.Errorf("somebody else's search: %d", status)
	}

	for range 5 { // what is not paid doesn't count
		if status, _ := town.visit("orders", http.MethodPost, "/orders?discounted=true&total=5000", "7"); status != http.StatusPaymentRequired {
			t.Errorf("an order beyond the credit: %d", status)
		}
	}
	discounts := 0
	town.eventually("a discounted order is denied", func() bool {
		status, after := town.visit("orders", http.MethodPost, "/orders?discounted=true&total=20", "7")
		if status == http.StatusOK {
			discounts++
			return false
		}
		if status != http.StatusTooManyRequests || after < 1 || after > 24*60*60 {
			t.Fatalf("%d, come back in %d s", status, after)
		}
		return true
	})
	if discounts < 3 {
		t.Errorf("%d discounts were given; three are allowed", discounts)
	}
	if status, _ := town.visit("orders", http.MethodPost, "/orders?total=20", "7"); status != http.StatusOK {
		t.Errorf("an order at the full price: %d", status)
	}
	if status, _ := town.visit("search", http.MethodGet, "/search", "7"); status != http.StatusOK {
		t.Errorf("a search of who has had his discounts: %d", status)
	}
}

// However many ask at the same moment, a coupon is redeemed five times: not four, and not six.
func TestCoupons(t *testing.T) {
	t.Parallel()
	stack, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{}) // it ends after its users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stack.Close)
	town := newTown(t, stack.Kafka[0], stack.Redis, "tallygate")
	redeem := func(coupon, total string) (status, after int) {
		return town.visit("coupons", http.MethodPost, "/coupons/"+coupon+"?total="+total, "42")
	}
	town.eventually("permits are granted", func() bool {
		status, after := redeem("ANOTHER", "20")
		if status == http.StatusServiceUnavailable && after != 1 {
			t.Fatalf("in doubt, come back in %d s", after)
		}
		return status == http.StatusOK
	})
	for range 4 { // what is not paid doesn't count
		if status, _ := redeem("WELCOME", "5000"); status != http.StatusPaymentRequired {
			t.Fatalf("a coupon for an order beyond the credit: %d", status)
		}
	}
	var rush sync.WaitGroup
	var redeemed, other atomic.Int32
	for range 30 {
		rush.Go(func() {
			switch status, _ := redeem("WELCOME", "20"); status {
			case http.StatusOK:
				redeemed.Add(1)
			case http.StatusTooManyRequests:
			default:
				other.Add(1)
			}
		})
	}
	rush.Wait()
	if redeemed.Load() > 5 || other.Load() > 0 {
		t.Errorf("in the rush it was redeemed %d times, and %d visits were neither let in nor denied", redeemed.Load(), other.Load())
	}
	town.eventually("the permits of those who did not pay are given back, and it is redeemed five times", func() bool {
		if status, _ := redeem("WELCOME", "20"); status == http.StatusOK {
			redeemed.Add(1)
		}
		return redeemed.Load() >= 5
	})
	for range 5 {
		if status, after := redeem("WELCOME", "20"); status != http.StatusTooManyRequests || after < 1 || after > 24*60*60 {
			t.Errorf("a coupon that is used up: %d, come back in %d s", status, after)
		}
	}
	if redeemed.Load() != 5 {
		t.Errorf("it was redeemed %d times, want 5", redeemed.Load())
	}
}

// What a program in Python emits counts like what the services do.
func TestPythonProducer(t *testing.T) {
	brokers, redisAddr := servers.Kafka(t), servers.Redis(t)
	prefix := servers.Name(t)
	servers.DropTopics(t, brokers, prefix)
	town := newTown(t, brokers[0], redisAddr, prefix)
	town.eventually("topics are there, and a visit is counted", func() bool {
		status, _ := town.visit("search", http.MethodGet, "/search", "somebody")
		return status == http.StatusTooManyRequests
	})
	python, err := exec.CommandContext(t.Context(), "bash", "../../scripts/python.sh").Output()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"../../clients/emit.py", strings.Join(brokers, ","), prefix + ".events", "6", "42"}
	if out, err := exec.CommandContext(t.Context(), strings.TrimSpace(string(python)), args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	town.eventually("who searched six times in Python is denied in Go", func() bool {
		status, _ := town.visit("search", http.MethodGet, "/suggest", "42")
		return status == http.StatusTooManyRequests
	})
}
