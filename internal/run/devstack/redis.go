package devstack

import (
	"fmt"
	"path"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// startRedis runs a miniredis whose keys expire by the clock, and which answers CONFIG GET,
// as publishers ask for the eviction policy before they start.
func startRedis(port int) (*miniredis.Miniredis, error) {
	r := miniredis.NewMiniRedis()
	r.ClockTTL(true)
	if err := r.StartAddr(fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
		return nil, err
	}
	if err := r.Server().Register("CONFIG", config); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

var settings = []struct{ name, value string }{
	{"maxmemory", "0"},
	{"maxmemory-policy", "noeviction"},
}

// config answers CONFIG GET for the settings above, and refuses to change any.
func config(c *server.Peer, _ string, args []string) {
	if len(args) < 2 || !strings.EqualFold(args[0], "GET") {
		c.WriteError("ERR the embedded Redis knows CONFIG GET only")
		return
	}
	var found []string
	for _, s := range settings {
		for _, pattern := range args[1:] {
			if ok, _ := path.Match(strings.ToLower(pattern), s.name); ok {
				found = append(found, s.name, s.value)
				break
			}
		}
	}
	c.WriteMapLen(len(found) / 2)
	for _, s := range found {
		c.WriteBulk(s)
	}
}
