package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/verdict"
)

// feeds follow the blocklist, each over a connection of its own.
type feeds struct {
	list  []*blocklist.Feed
	done  chan error
	conns []*redis.Client
}

// nothing is a sink that keeps nothing: it is Redis and the feeds that are measured.
type nothing struct{}

func (nothing) Replace(int, []verdict.Verdict) {}
func (nothing) Apply(int, []verdict.Verdict)   {}
func (nothing) Remove(int, []byte)             {}
func (nothing) Heartbeat(int, event.Micros)    {}

func startFeeds(ctx context.Context, addr, prefix string, n int) (*feeds, error) {
	fs := &feeds{done: make(chan error, n)}
	for range n {
		client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1, ReadTimeout: 30 * time.Second})
		fs.conns = append(fs.conns, client)
		f, err := blocklist.NewFeed(blocklist.FeedConfig{Redis: client, Prefix: prefix})
		if err != nil {
			return fs, err
		}
		fs.list = append(fs.list, f)
		go func() { fs.done <- f.Run(ctx, nothing{}) }()
	}
	return fs, nil
}

// wait returns when all feeds have ended.
func (fs *feeds) wait() error {
	var errs []error
	for range fs.list {
		errs = append(errs, <-fs.done)
	}
	for _, c := range fs.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func (fs *feeds) ready() bool {
	for _, f := range fs.list {
		if f.Stats().Snapshots == 0 {
			return false
		}
	}
	return true
}

// changes is how many changes all feeds together have had.
func (fs *feeds) changes() (sum uint64) {
	for _, f := range fs.list {
		sum += f.Stats().Changes
	}
	return sum
}
