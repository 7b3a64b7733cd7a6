package blocklist

import (
	"context"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

var _ Snapshotter = (*enforce.Table)(nil)

// kept starts an enforcer that keeps a copy; the returned functions start its feed, and end it.
func kept(t *testing.T, file string) (table *enforce.Table, loaded Loaded, follow func(s *stage), end func()) {
	t.Helper()
	table, err := enforce.NewTable(enforce.Config{Shards: stageShards + 1})
	if err != nil {
		t.Fatal(err)
	}
	k, err := NewKeeper(KeeperConfig{File: file, Table: table, Shards: stageShards, Logger: rig.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if loaded, err = k.Load(); err != nil {
		t.Fatal(err)
	}
	stops := []func(){testrun.Start(t, k.Run)}
	return table, loaded, func(s *stage) {
			feed, err := quickFeed(s.redis)
			if err != nil {
				t.Fatal(err)
			}
			stops = append(stops, testrun.Start(t, func(ctx context.Context) error { return feed.Run(ctx, k.Sink()) }))
		}, func() {
			for _, stop := range stops {
				stop()
			}
		}
}

// TestARestartWhileRedisIsAway: the enforcer denies what it knew. When Redis is back, what ended
// meanwhile goes, and nothing else does at any moment, though the shards become complete one after
// the other.
func TestARestartWhileRedisIsAway(t *testing.T) {
	file := filepath.Join(t.TempDir(), "blocklist")
	s := newStage(t, single(miniredis.RunT(t).Addr()))
	s.publisher(nil)
	s.block(rig.UIDs("stays", 300)...)
	s.block(rig.UIDs("ends", 10)...)
	s.publish("short", rig.Block("short", 1, 2*time.Second), false)

	table, loaded, follow, end := kept(t, file)
	if loaded != (Loaded{}) {
		t.Errorf("%+v was loaded, and there was no file", loaded)
	}
	follow(s)
	testrun.Eventually(t, "all are denied", func() bool { return table.Ready() && table.Len() >= 311 })
	end()
	s.clear(rig.UIDs("ends", 10)...)
	s.block("new")
	testrun.Eventually(t, "one has run out", func() bool { return event.FromTime(time.Now()) > s.truth["uid=short|r"].Until })

	table, loaded, follow, end = kept(t, file)
	defer end()
	if loaded.Verdicts != 310 || loaded.Age <= 0 || table.Staleness() < loaded.Age || table.Ready() {
		t.Errorf("%+v, staleness %v, ready %v: want the 310 that have not run out, their age, and not ready", loaded, table.Staleness(), table.Ready())
	}
	denied := func(uid string) bool { return !table.CheckAt(event.FromTime(time.Now()), "any", uid).Allowed }
	stays := func() bool {
		return !slices.ContainsFunc(rig.UIDs("stays", 300), func(uid string) bool { return !denied(uid) })
	}
	if !stays() || !denied("ends1") || denied("short") || denied("new") {
		t.Error("the table is not what the last one was, less what ran out")
	}
	follow(s)
	testrun.Eventually(t, "it is complete", func() bool {
		if !stays() {
			t.Fatal("a block was lost")
		}
		return table.Ready() && denied("new") && !slices.ContainsFunc(rig.UIDs("ends", 10), denied)
	})
}

func TestADamagedCopyIsNotLoaded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "blocklist")
	a, b := rig.Block("a", 1, time.Hour), rig.Block("b", 2, time.Hour)
	if err := writeCopy(file, "tallygate", 5, []*verdict.Verdict{&a, &b}); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := readCopy(file, "tallygate"); err != nil || len(c.verdicts) != 2 || c.applied != 5 {
		t.Fatal(c, err)
	}
	if _, err := readCopy(file, "other"); err == nil {
		t.Error("the copy of another blocklist is loaded")
	}
	for i := range good {
		if _, err := decodeCopy(good[:i], "tallygate"); !errors.Is(err, errBadCopy) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
		bad := slices.Clone(good)
		bad[i] ^= 0x10
		if _, err := decodeCopy(bad, "tallygate"); !errors.Is(err, errBadCopy) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want a file for its owner only", info.Mode(), err)
	}
	if left, _ := filepath.Glob(file + "*"); len(left) != 1 {
		t.Errorf("%v is left", left)
	}
	if err := writeCopy(filepath.Join(file, "nowhere"), "tallygate", 5, nil); err == nil {
		t.Error("a folder that isn't one is written")
	}
}

func FuzzCopy(f *testing.F) {
	f.Add([]byte("\x09tallygate\x08\x05\x00\x00\x00\x00\x00\x00\x00\x02{}"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		b = append([]byte(copyMagic), b...)
		sum := crc32.New(castagnoli)
		_, _ = sum.Write(b)
		_, _ = decodeCopy(append(b, checksum(sum)...), "tallygate")
	})
}
