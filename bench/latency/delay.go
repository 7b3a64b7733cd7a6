package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"
)

// wire is the network between programs and one broker: a TCP proxy that keeps every byte for half of a round
// trip each way. It holds up nothing behind it: what is sent later arrives as much later, and no bandwidth is
// lost.
type wire struct {
	addr      string
	target    string
	roundTrip *atomic.Int64 // nanoseconds, as they are at the moment
}

// lay starts a wire that listens at addr. It ends with the process.
func lay(addr, target string, roundTrip *atomic.Int64) (*wire, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for what goes to %s: %w", target, err)
	}
	w := &wire{addr: l.Addr().String(), target: target, roundTrip: roundTrip}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go w.join(client)
		}
	}()
	return w, nil
}

func (w *wire) join(client net.Conn) {
	server, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), "tcp", w.target)
	if err != nil {
		_ = client.Close()
		return
	}
	go w.carry(client, server)
	w.carry(server, client)
}

// parcel is what was read at once.
type parcel struct {
	due  time.Time
	data []byte
}

// onTheWay is how many parcels there may be between two ends: more than a round trip's.
const onTheWay = 4096

// carry moves bytes one way until either end closes.
func (w *wire) carry(from, to net.Conn) {
	way := make(chan parcel, onTheWay)
	go func() {
		defer close(way)
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			due := time.Now().Add(time.Duration(w.roundTrip.Load() / 2))
			way <- parcel{due, append([]byte(nil), buf[:n]...)}
		}
	}()
	for p := range way {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
	_, _ = from.Close(), to.Close()
	for range way { // its reader has ended, or does now
	}
}

// measure returns what a round trip through a wire takes here, half of the time: sleeping wakes up late.
func measure(roundTrip *atomic.Int64) (time.Duration, error) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer echo.Close()
	go func() {
		if c, err := echo.Accept(); err == nil {
			_, _ = io.Copy(c, c)
		}
	}()
	w, err := lay("127.0.0.1:0", echo.Addr().String(), roundTrip)
	if err != nil {
		return 0, err
	}
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var took []time.Duration
	for range 51 {
		began := time.Now()
		if _, err := c.Write([]byte{1}); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
