// Command throughput measures how many events an aggregator counts per second, and per second
// of its process's CPU, beside a bare sarama consumer of the same records in the same run.
//
//	scripts/bench.sh throughput --events 1000000 --runs 3
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
)

//go:embed rules.yaml
var rulesYAML []byte

type bench struct {
	brokers    []string
	events     int
	uids       int
	zipf       float64 // the exponent of half of the events' uids
	ids        bool    // each event has an id of its own
	perRecord  int
	partitions int
	checkpoint time.Duration
	dir        string
	cpuprofile string
	restart    bool
	hot        float64 // the share of events with one address
	instances  int
	lines      bool // also print results in Go's benchmark format
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "consume" {
		exit(consume(os.Args[2], os.Args[3], os.Args[4]))
	}
	var b bench
	kafka := flag.String("kafka", "127.0.0.1:9092", "Kafka's `HOST:PORT,…`")
	flag.IntVar(&b.events, "events", 1_000_000, "events a run")
	flag.IntVar(&b.uids, "uids", 1_000_000, "uids; half of the events are zipf-distributed, half uniform")
	flag.Float64Var(&b.zipf, "zipf", 1.05, "the exponent of the zipf-distributed half, above 1")
	flag.BoolVar(&b.ids, "ids", true, "give each event an id of its own, as emitters do")
	flag.IntVar(&b.perRecord, "per-record", 1, "events a record")
	flag.IntVar(&b.partitions, "partitions", 4, "partitions")
	flag.DurationVar(&b.checkpoint, "checkpoint-every", time.Second, "the aggregator's checkpoint interval")
	flag.StringVar(&b.cpuprofile, "cpuprofile", "", "write the last run's CPU profile of the aggregator to this `FILE`")
	flag.Float64Var(&b.hot, "hot", 0, "the share of events that count on the key of one address, too: compares what instances forward in packs and whole")
	flag.IntVar(&b.instances, "instances", 2, "aggregators, with --hot")
	flag.BoolVar(&b.restart, "recovery", false, "start the aggregator again after each run, and measure its recovery")
	flag.BoolVar(&b.lines, "lines", false, "also print results in Go's benchmark format")
	runs := flag.Int("runs", 3, "interleaved repeats")
	flag.Parse()
	b.brokers = strings.Split(*kafka, ",")
	exit(b.all(*runs))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "throughput:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (b *bench) all(runs int) error {
	dir, err := os.MkdirTemp("", "throughput")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.dir = dir
	if err := b.prepare(); err != nil {
		return err
	}
	if b.hot > 0 {
		return b.hotRuns(runs)
	}
	fmt.Printf("%d events, ids %t, %d uids (half zipf %g), %d a record, %d partitions, five rules, checkpoint every %v\n",
		b.events, b.ids, b.uids, b.zipf, b.perRecord, b.partitions, b.checkpoint)
	var ratios []float64
	for run := range runs {
		prefix := fmt.Sprintf("bench-%d-%d", time.Now().UnixMilli(), run)
		if err := b.produce(prefix, uint64(run)); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		bare, err := b.bare(prefix)
		if err != nil {
			return fmt.Errorf("bare consumer: %w", err)
		}
		agg, err := b.aggregator(prefix)
		if err != nil {
			return fmt.Errorf("aggregator: %w", err)
		}
		ratios = append(ratios, agg.perCPU()/bare.perCPU())
		fmt.Printf("run %d  bare sarama %s   aggregator %s   ratio per CPU-second %.2f\n", run+1, bare, agg, agg.perCPU()/bare.perCPU())
		if b.lines {
			load := fmt.Sprintf("per-record=%d", b.perRecord)
			if !b.ids {
				load = "no-ids/" + load
			}
			fmt.Printf("BenchmarkBareConsumer/%s %s\n", load, bare.line())
			fmt.Printf("BenchmarkAggregator/%s %s %.2f ×bare-consumer %.0f resident-MB\n", load, agg.line(), bare.perCPU()/agg.perCPU(), agg.resident)
		}
		sizes, err := b.sizes(prefix)
		if err != nil {
			return err
		}
		fmt.Println("      in Kafka:" + sizes)
		fmt.Println("      ", agg.pauses)
		if !b.restart {
			continue
		}
		r, err := b.recovery(prefix)
		if err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
		fmt.Println("      ", r)
		if b.lines {
			fmt.Println(r.line())
		}
	}
	slices.Sort(ratios)
	fmt.Printf("median ratio per CPU-second: %.2f\n", ratios[len(ratios)/2])
	return nil
}

// prepare writes the rules, and builds the aggregator.
func (b *bench) prepare() error {
	rules := rulesYAML
	if b.hot > 0 {
		rules = hotYAML
	}
	if err := os.WriteFile(b.rulesFile(), rules, 0o600); err != nil {
		return err
	}
	if out, err := exec.Command("go", "build", "-o", filepath.Join(b.dir, "aggregator"), "./cmd/aggregator").CombinedOutput(); err != nil {
		return fmt.Errorf("build the aggregator: %w\n%s", err, out)
	}
	return nil
}

// produce makes the topic and fills it.
func (b *bench) produce(prefix string, seed uint64) error {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Producer.Compression = sarama.CompressionLZ4
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Return.Successes = true
	cfg.Producer.Flush.Frequency = 10 * time.Millisecond
	cfg.Producer.MaxMessageBytes = 1 << 20
	admin, err := sarama.NewClusterAdmin(b.brokers, cfg)
	if err != nil {
		return err
	}
	defer admin.Close()
	appendTime, size := "LogAppendTime", "2097152"
	err = admin.CreateTopic(prefix+".events", &sarama.TopicDetail{NumPartitions: int32(b.partitions), ReplicationFactor: 1,
		ConfigEntries: map[string]*string{"message.timestamp.type": &appendTime, "max.message.bytes": &size}}, false)
	if err != nil {
		return err
	}
	p, err := sarama.NewAsyncProducer(b.brokers, cfg)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	acked := make(chan struct{})
	go func() {
		defer close(acked)
		for range p.Successes() {
		}
	}()
	go func() {
		for e := range p.Errors() {
			select {
			case failed <- e:
			default:
			}
		}
	}()
	b.fill(p, prefix, seed)
	p.AsyncClose()
	<-acked
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func (b *bench) fill(p sarama.AsyncProducer, prefix string, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	zipf := rand.NewZipf(rng, b.zipf, 8, uint64(b.uids-1))
	packs := make([][]byte, b.partitions)
	sizes := make([]int, b.partitions)
	flush := func(part int) {
		if sizes[part] > 0 {
			p.Input() <- &sarama.ProducerMessage{Topic: prefix + ".events", Partition: int32(part), Value: sarama.ByteEncoder(append(packs[part], ']'))}
			packs[part], sizes[part] = nil, 0
		}
	}
	for i := range b.events {
		n := uint64(rng.IntN(b.uids))
		if i%2 == 0 {
			n = zipf.Uint64()
		}
		uid := fmt.Sprintf("user-%07d", n)
		api := "search.query"
		if i%3 == 0 {
			api = "search.suggest"
		}
		id := ""
		if b.ids {
			id = fmt.Sprintf(`"id":"e%d-%09d",`, seed, i)
		}
		ip := fmt.Sprintf(`"ip":"203.0.113.%d",`, i%250)
		switch {
		case b.isHot(i):
			ip = `"ip":"` + hotAddress + `",`
		case b.hot > 0:
			ip = ""
		}
		body := fmt.Appendf(nil, `{%s"uid":"%s","api":"%s","outcome":"success",%s"attrs":{"device":"d%d","bytes":%d,"discounted":true}}`,
			id, uid, api, ip, i%1000, i%4096)
		part := int(event.Partition([]byte(uid), int32(b.partitions)))
		if b.perRecord <= 1 {
			p.Input() <- &sarama.ProducerMessage{Topic: prefix + ".events", Partition: int32(part), Key: sarama.StringEncoder(uid), Value: sarama.ByteEncoder(body)}
			continue
		}
		if sizes[part] == 0 {
			packs[part] = []byte{'['}
		} else {
			packs[part] = append(packs[part], ',')
		}
		packs[part] = append(packs[part], body...)
		if sizes[part]++; sizes[part] == b.perRecord {
			flush(part)
		}
	}
	for part := range packs {
		flush(part)
	}
}

// bare runs this program as a consumer that does nothing with what it reads.
func (b *bench) bare(prefix string) (result, error) {
	self, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	cmd := exec.Command(self, "consume", strings.Join(b.brokers, ","), prefix+".events", strconv.Itoa(b.partitions))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return result{}, fmt.Errorf("%w\n%s", err, out)
	}
	wall := time.Since(began)
	return result{events: b.events, wall: wall, cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}, nil
}

// consume reads a topic to its end with a bare sarama consumer.
func consume(brokers, topic, partitions string) error {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Consumer.Fetch.Default = 8 << 20
	cfg.Consumer.MaxWaitTime = 100 * time.Millisecond
	n, err := strconv.Atoi(partitions)
	if err != nil {
		return err
	}
	client, err := sarama.NewClient(strings.Split(brokers, ","), cfg)
	if err != nil {
		return err
	}
	ends := make([]int64, n)
	for i := range ends {
		if ends[i], err = client.GetOffset(topic, int32(i), sarama.OffsetNewest); err != nil {
			return err
		}
	}
	c, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	done := make(chan error, n)
	for i, end := range ends {
		pc, err := c.ConsumePartition(topic, int32(i), sarama.OffsetOldest)
		if err != nil {
			return err
		}
		go func() {
			for m := range pc.Messages() {
				if m.Offset >= end-1 {
					break
				}
			}
			done <- nil
		}()
	}
	for range ends {
		if err := <-done; err != nil {
			return err
		}
	}
	return nil
}

// aggregator runs the program until it has counted every event.
func (b *bench) aggregator(prefix string) (result, error) {
	metrics := freeAddr()
	cmd := b.command(prefix, metrics, "warn")
	cmd.Stderr = os.Stderr
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return result{}, err
	}
	defer stop(cmd)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if b.cpuprofile != "" {
		go b.profile(ctx, metrics)
	}
	for {
		m, err := scrape(ctx, metrics)
		if err == nil && m[`tallygate_events_total{result="counted"}`] >= float64(b.events) {
			cpu := m["process_cpu_seconds_total"]
			keys, state := sum(m, "tallygate_state_keys"), sum(m, "tallygate_state_bytes")
			note := ""
			if keys > 0 {
				note = fmt.Sprintf(" (%.0f keys, %.0f B/key, %.0f MB resident)", keys, state/keys, m["process_resident_memory_bytes"]/1e6)
			}
			return result{
				events: b.events, wall: time.Since(began), cpu: time.Duration(cpu * float64(time.Second)), note: note, pauses: pauses(m),
				resident: m["process_resident_memory_bytes"] / 1e6,
			}, nil
		}
		select {
		case <-ctx.Done():
			return result{}, errors.New("not all events were counted in 10 minutes")
		case <-time.After(50 * time.Millisecond): // a scrape takes CPU, too
		}
	}
}

// stop lets the program make its last checkpoint.
func stop(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait()
}

func (b *bench) profile(ctx context.Context, metrics string) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metrics+"/debug/pprof/profile?seconds=4", nil)
		if err != nil {
			return
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		defer resp.Body.Close()
		f, err := os.Create(b.cpuprofile)
		if err != nil {
			return
		}
		defer f.Close()
		_, _ = f.ReadFrom(resp.Body)
		return
	}
}
