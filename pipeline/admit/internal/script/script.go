// Package script holds the data of strict limits in Redis, and its scripts. They do what protocol.Memory does, which
// is their reference; a test asks both the same questions.
//
// A script must know for certain which Redis process it runs on. So its text begins with the
// process' run id, and it is loaded on the same connection that the id was read on. It is called by
// its hash: a process that was not asked for its id does not know the script, and says so.
package script

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	_ "embed"     // the scripts
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:embed layout.lua
var layoutSource string

//go:embed common.lua
var commonSource string

//go:embed admit.lua
var admitSource string

//go:embed cancel.lua
var cancelSource string

//go:embed apply.lua
var applySource string

//go:embed report.lua
var reportSource string

//go:embed inspect.lua
var inspectSource string

// op is one of the scripts.
type op int

const (
	opAdmit op = iota
	opCancel
	opApply
	opReport
	opInspect
	ops
)

// Admission is asked most: it does without the others' functions.
var sources = [ops]string{admitSource, commonSource + cancelSource, commonSource + applySource, commonSource + reportSource, inspectSource}

// ErrTooOld is the error for a Redis that strict limits cannot use.
var ErrTooOld = errors.New("script: strict limits need Redis 7 or newer")

// Shards calls the scripts of all shards. All fields are required; its methods may be called by many
// goroutines.
type Shards struct {
	Client     redis.UniversalClient
	Prefix     string
	Shards     int
	Partitions int32 // of the verdict topic

	names  func() string                 // of new epochs; nil: of chance
	source func(p *process, o op) string // of scripts; nil: source

	mu    sync.Mutex
	runs  map[int]*process // by shard
	lanes []*lane          // by shard
}

// process is a Redis process, and the names of the scripts that it was told.
type process struct {
	run  string
	shas [ops]string
	json bool // it has no cmsgpack: it is one in memory
}

// Shard is the shard of a partition.
func (s *Shards) Shard(partition int32) int { return int(partition) % s.Shards }

func (s *Shards) meta(shard int) string {
	return "{" + s.Prefix + ":" + strconv.Itoa(shard) + "}:strict"
}

// call runs a script. A process that does not know it is asked for its id, and told.
func (s *Shards) call(ctx context.Context, shard int, o op, args func(*process) []any) ([]any, error) {
	meta := s.meta(shard)
	for try := 0; ; try++ {
		p, err := s.process(ctx, shard)
		if err != nil {
			return nil, err
		}
		reply, err := s.Client.EvalSha(ctx, p.shas[o], []string{meta}, args(p)...).Result()
		switch {
		case err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") && try == 0:
			s.unknown(shard, p)
		case err != nil:
			return nil, fmt.Errorf("ask %s in Redis: %w", meta, err)
		default:
			list, ok := reply.([]any)
			if !ok {
				list = []any{reply}
			}
			return list, nil
		}
	}
}

// unknown forgets a process that does not know its scripts: it is another one.
func (s *Shards) unknown(shard int, p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs[shard] == p {
		delete(s.runs, shard)
	}
}

// process returns the process of a shard, which knows the scripts.
func (s *Shards) process(ctx context.Context, shard int) (*process, error) {
	s.mu.Lock()
	p := s.runs[shard]
	s.mu.Unlock()
	if p != nil {
		return p, nil
	}
	p, err := s.learn(ctx, shard)
	if err != nil {
		return nil, fmt.Errorf("load the scripts of %s into Redis: %w", s.meta(shard), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = map[int]*process{}
	}
	s.runs[shard] = p
	return p, nil
}

// hasMsgpack is a script that tells whether there is MessagePack.
const hasMsgpack = "return rawget(_G, 'cmsgpack') and 1 or 0"

// learn reads a process' id and loads the scripts, all on one connection.
func (s *Shards) learn(ctx context.Context, shard int) (*process, error) {
	node, err := s.node(ctx, shard)
	if err != nil {
		return nil, err
	}
	conn := node.Conn() // one connection, until it breaks; then all fails
	defer conn.Close()
	p := &process{}
	if p.run, err = s.runID(ctx, conn, shard); err != nil {
		return nil, err
	}
	has, err := conn.Eval(ctx, hasMsgpack, nil).Int()
	if err != nil {
		return nil, err
	}
	p.json = has == 0
	for o := range ops {
		text := s.text(p, o)
		if p.shas[o], err = conn.ScriptLoad(ctx, text).Result(); err != nil {
			return nil, err
		}
		if sum := sha1.Sum([]byte(text)); p.shas[o] != hex.EncodeToString(sum[:]) { //nolint:gosec // as above
			return nil, errors.New("it names scripts by something else than SHA-1")
		}
	}
	return p, nil
}

// runID asks a process who it is.
func (s *Shards) runID(ctx context.Context, conn *redis.Conn, shard int) (string, error) {
	info, err := conn.Info(ctx, "server").Result()
	switch {
	case err != nil && strings.Contains(err.Error(), "section (server) is not supported"):
		// It is one in memory, for tests and demonstrations: it has no replica, and what it keeps ends with
		// it. So an id that it keeps is as good.
		if err := conn.SetNX(ctx, s.meta(shard)+":run", s.newName(), 0).Err(); err != nil {
			return "", err
		}
		return conn.Get(ctx, s.meta(shard)+":run").Result()
	case err != nil:
		return "", err
	}
	if major, _, _ := strings.Cut(infoField(info, "redis_version"), "."); len(major) < 2 && major < "7" {
		return "", fmt.Errorf("%w, not %q: older ones hand scripts on to replicas", ErrTooOld, infoField(info, "redis_version"))
	}
	run := infoField(info, "run_id")
	if run == "" {
		return "", errors.New("it does not say its run id")
	}
	return run, nil
}

// text is a script for a process.
func (s *Shards) text(p *process, o op) string {
	if s.source != nil {
		return s.source(p, o)
	}
	return source(p, o)
}

func source(p *process, o op) string {
	packing := "cmsgpack, struct"
	if p.json {
		packing = "nil, nil"
	}
	return "local RUN, msgpack, struct = '" + p.run + "', " + packing + "\n" + layoutSource + sources[o]
}

func (s *Shards) node(ctx context.Context, shard int) (*redis.Client, error) {
	switch c := s.Client.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, s.meta(shard))
	default:
		return nil, fmt.Errorf("a client of type %T, want one for a server, Sentinel or Cluster", s.Client)
	}
}

// infoField finds a field in what INFO answers.
func infoField(info, name string) string {
	for line := range strings.SplitSeq(info, "\n") {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return value
		}
	}
	return ""
}
