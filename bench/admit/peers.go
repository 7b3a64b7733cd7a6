package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tallygate/tallygate/internal/testing/freeport"
)

// peer is a way to ask.
type peer struct {
	name   string
	pid    int // of its server; 0: it asks Redis
	ask    func(ctx context.Context, client, user int) error
	before func(ctx context.Context) error // each measurement
	after  func(ctx context.Context) error
}

var errDenied = errors.New("it denied")

// bareScript is what people write.
var bareScript = redis.NewScript(`
local n = redis.call('INCR', KEYS[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return n <= tonumber(ARGV[1]) and 1 or 0`)

// gcraScript is redis-cell's algorithm, with its five numbers. ARGV: µs between two requests, and how many at once.
var gcraScript = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local full = tonumber(redis.call('GET', KEYS[1])) or now
if full < now then full = now end
local after = full + interval
local late = after - now - burst * interval
if late > 0 then return {1, burst, 0, late, full - now} end
redis.call('SET', KEYS[1], string.format('%.0f', after), 'PX', math.ceil((after - now) / 1000))
return {0, burst, math.floor(-late / interval), -1, after - now}`)

// newPeers makes the bare script, and the others whose names begin with one of the words.
func newPeers(ctx context.Context, client *redis.Client, addr string, users int, words []string) (peers []*peer, stop func(), err error) {
	names := make([]string, users)
	for i := range names {
		names[i] = "u" + strconv.Itoa(i)
	}
	peers = []*peer{
		{name: "bare INCR and EXPIRE", ask: func(ctx context.Context, _, user int) error {
			n, err := bareScript.Run(ctx, client, []string{"bare:" + names[user]}, 1_000_000_000, 3600).Int()
			return whether(n == 1, err)
		}},
		{name: "GCRA in Lua", ask: func(ctx context.Context, _, user int) error {
			five, err := gcraScript.Run(ctx, client, []string{"gcra:" + names[user]}, 3600, 1_000_000).Int64Slice()
			return whether(err == nil && five[0] == 0, err)
		}},
	}
	rate := redis_rate.NewLimiter(client)
	peers = append(peers, &peer{name: "redis_rate", ask: func(ctx context.Context, _, user int) error {
		r, err := rate.Allow(ctx, names[user], redis_rate.PerHour(1_000_000))
		return whether(err == nil && r.Allowed > 0, err)
	}})
	peers = append(peers, newScriptedLevels(client))
	ours, stopOurs, err := newPermits(ctx, client, addr, names)
	if err != nil {
		return nil, nil, err
	}
	peers = append(peers, ours...)
	peers = slices.DeleteFunc(peers, func(p *peer) bool { return p.name != peers[0].name && !begins(p.name, words) })
	if !begins("gubernator", words) {
		return peers, stopOurs, nil
	}
	guber, stopGuber, err := newGubernator(ctx, names)
	if err != nil {
		stopOurs()
		return nil, nil, fmt.Errorf("gubernator: %w", err)
	}
	return append(peers, guber), func() { stopGuber(); stopOurs() }, nil
}

// check refuses words that no peer's name begins with.
func check(words []string) error {
	known := []string{"bare INCR and EXPIRE", "GCRA in Lua", "redis_rate", "three levels in Lua", "permit", "gubernator"}
	for _, word := range words {
		if !slices.ContainsFunc(known, func(name string) bool { return begins(name, []string{word}) }) {
			return fmt.Errorf("--only: nothing begins with %q; there are %s", word, strings.Join(known, ", "))
		}
	}
	return nil
}

func begins(name string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(strings.ToLower(name), strings.ToLower(w)) })
}

func whether(admitted bool, err error) error {
	if err == nil && !admitted {
		return errDenied
	}
	return err
}

// newGubernator starts one node, which is the owner of all keys.
func newGubernator(ctx context.Context, names []string) (*peer, func(), error) {
	build := exec.CommandContext(ctx, "go", "tool", "-n", "gubernator") // with the first run some minutes
	build.Dir, build.Stderr = "bench/admit/gubernator", os.Stderr
	program, err := build.Output()
	if err != nil {
		return nil, nil, err
	}
	at, other := freeAddr(), freeAddr()
	server := exec.CommandContext(ctx, strings.TrimSpace(string(program)))
	gossip := freeAddr()
	server.Env = append(os.Environ(), "GUBER_GRPC_ADDRESS="+at, "GUBER_HTTP_ADDRESS="+other, "GUBER_LOG_LEVEL=error", "OTEL_TRACES_EXPORTER=none",
		"GUBER_MEMBERLIST_ADDRESS="+gossip, "GUBER_MEMBERLIST_BIND_ADDRESS="+gossip, "GUBER_MEMBERLIST_KNOWN_NODES="+gossip)
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		return nil, nil, err
	}
	stop := func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	if err != nil {
		stop()
		return nil, nil, err
	}
	ask := func(ctx context.Context, _, user int) error { return askGubernator(ctx, conn, names[user]) }
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if err = ask(ctx, 0, 0); err == nil {
			break
		}
		if time.Now().After(end) {
			stop()
			return nil, nil, fmt.Errorf("it does not answer: %w", err)
		}
	}
	return &peer{name: "gubernator", pid: server.Process.Pid, ask: ask}, stop, nil
}

// raw is a codec for messages that are encoded already.
type raw struct{}

func (raw) Name() string                    { return "proto" }
func (raw) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (raw) Unmarshal(b []byte, v any) error { *v.(*[]byte) = slices.Clone(b); return nil }

// askGubernator encodes its question by hand: its client needs half of Kubernetes to build.
func askGubernator(ctx context.Context, conn *grpc.ClientConn, key string) error {
	var one []byte
	one = protowire.AppendString(protowire.AppendTag(one, 1, protowire.BytesType), "bench")
	one = protowire.AppendString(protowire.AppendTag(one, 2, protowire.BytesType), key)
	for field, value := range map[protowire.Number]uint64{3: 1 /* hits */, 4: 1_000_000_000 /* limit */, 5: 3_600_000 /* ms */, 7: 1 /* NO_BATCHING */} {
		one = protowire.AppendVarint(protowire.AppendTag(one, field, protowire.VarintType), value)
	}
	question, answer := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), one), []byte(nil)
	if err := conn.Invoke(ctx, "/pb.gubernator.V1/GetRateLimits", &question, &answer); err != nil {
		return err
	}
	_, _, n := protowire.ConsumeTag(answer)
	one, _ = protowire.ConsumeBytes(answer[max(n, 0):])
	for len(one) > 0 {
		field, kind, n := protowire.ConsumeTag(one)
		value := protowire.ConsumeFieldValue(field, kind, one[max(n, 0):])
		switch {
		case n < 0 || value < 0:
			return errors.New("gubernator: an answer that is malformed")
		case field == 1: // its status: 0, under the limit, is left out
			return errDenied
		case field == 5:
			return fmt.Errorf("gubernator: %s", one[n+1:n+value])
		}
		one = one[n+value:]
	}
	return nil
}

// freeAddr is where a program may listen.
func freeAddr() string {
	addr, err := freeport.Addr()
	if err != nil {
		return "127.0.0.1:0" // nobody finds it there, and the run ends with an error
	}
	return addr
}

// cpuOf is the CPU that a process has used, in Linux' hundredths of a second.
func cpuOf(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	kernel, err2 := strconv.Atoi(fields[12])
	return time.Duration(user+kernel) * 10 * time.Millisecond, cmp.Or(err, err2)
}
