package redisconn_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/run/redisconn"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// env is an environment of a test's own.
type env map[string]string

// secret is a file with a password.
func secret(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func build(t *testing.T, e env, args ...string) (redis.UniversalClient, error) {
	t.Helper()
	o := ops.NewOptions("test", "", io.Discard, testrun.Env(e))
	r := redisconn.NewOptions(o, "127.0.0.1:1")
	if err := o.Parse(args); err != nil {
		t.Fatal(err)
	}
	if !r.Given() {
		t.Error("there is a default")
	}
	c, err := r.Build()
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

func TestOneServerOrACluster(t *testing.T) {
	file := secret(t)
	c, err := build(t, nil, "--redis", "r:6379", "--redis-user", "u", "--redis-password-file", file, "--redis-db", "3", "--redis-tls")
	if err != nil {
		t.Fatal(err)
	}
	if o := c.(*redis.Client).Options(); o.Addr != "r:6379" || o.Username != "u" || o.Password != "hush" || o.DB != 3 || o.TLSConfig == nil {
		t.Errorf("%+v", o)
	}
	for _, args := range []string{"--redis a:1,b:2", "--redis a:1 --redis-cluster"} {
		c, err := build(t, env{"TALLYGATE_REDIS_PASSWORD": "hush"}, strings.Fields(args)...)
		if err != nil {
			t.Fatal(err)
		}
		if cluster, ok := c.(*redis.ClusterClient); !ok || cluster.Options().Password != "hush" {
			t.Errorf("%s: %T", args, c)
		}
	}
	if _, err := build(t, nil, "--redis-key", filepath.Join(t.TempDir(), "k")); err == nil {
		t.Error("a key without TLS is accepted")
	}
}

func TestSentinels(t *testing.T) {
	file := secret(t)
	c, err := build(t, env{"TALLYGATE_REDIS_PASSWORD": "other"}, "--redis", "s1:26379,s2:26379", "--redis-master", "shop",
		"--redis-sentinel-user", "watcher", "--redis-sentinel-password-file", file, "--redis-db", "3")
	if err != nil {
		t.Fatal(err)
	}
	if o := c.(*redis.Client).Options(); o.Addr != "FailoverClient" || o.Password != "other" || o.DB != 3 {
		t.Errorf("%+v", o)
	}
	for _, args := range []string{"--redis a:1 --redis-master m --redis-cluster", "--redis a:1,b:2 --redis-db 1", "--redis a:1 --redis-sentinel-user u"} {
		if _, err := build(t, nil, strings.Fields(args)...); err == nil {
			t.Errorf("%s is accepted", args)
		}
	}
}
