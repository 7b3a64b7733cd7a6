package dev

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/redisconn"
)

// exports are lines for a shell in which tallygate's commands then find this dev: nothing where all of it listens
// at the addresses that they ask by themselves.
func (s *stack) exports() string {
	asked := s.port(1) != 0 // for the usual ports, not for any
	var lines, taken []string
	for _, one := range []struct {
		variable, usual, is string
		ours                bool // whether dev would have listened there
	}{
		{"TALLYGATE_KAFKA", kafkaconn.Usual, strings.Join(s.kafka.Brokers, ","), asked && s.ownKafka()},
		{"TALLYGATE_REDIS", redisconn.Usual, s.rds, asked && slices.Contains(s.embedded, embeddedRedis)},
		{"TALLYGATE_AGGREGATOR", apiclient.Usual, s.api.Addr().String(), s.listen == usualListen},
	} {
		if one.is == one.usual {
			continue
		}
		lines = append(lines, fmt.Sprintf("  export %s=%s\n", one.variable, one.is))
		if _, port, err := net.SplitHostPort(one.usual); err == nil && one.ours {
			taken = append(taken, port)
		}
	}
	if s.prefix != usualPrefix {
		lines = append(lines, fmt.Sprintf("  export TALLYGATE_PREFIX=%s\n", s.prefix))
	}
	if len(lines) == 0 {
		return ""
	}
	why := "Commands in another shell find this one after"
	if len(taken) > 0 {
		ports := "port"
		if len(taken) > 1 {
			ports = "ports"
		}
		why = fmt.Sprintf("Another program has %s %s. %s", ports, strings.Join(taken, ", "), why)
	}
	return why + ":\n" + strings.Join(lines, "") + "\n"
}
