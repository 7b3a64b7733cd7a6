package aggregate

import (
	"net"
	"reflect"
	"sync"
	"testing"

	"github.com/IBM/sarama"
)

// inUse are settings by which connections are opened.
type inUse struct {
	t        *testing.T
	settings *sarama.Config

	mu    sync.Mutex
	first map[string]any // what the first connection found
}

// Dial fails the test if the settings differ from those of the first connection.
func (u *inUse) Dial(network, addr string) (net.Conn, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	is := map[string]any{"client id": u.settings.ClientID, "partitioner": reflect.ValueOf(u.settings.Producer.Partitioner).Pointer()}
	if u.first == nil {
		u.first = is
	} else if !reflect.DeepEqual(is, u.first) {
		u.t.Errorf("settings were changed while a client used them: %v, then %v", u.first, is)
	}
	return net.Dial(network, addr)
}

// goka's builders write into the settings that they are given. With several brokers, a client that
// already has these settings reads them in the background: that was a data race.
func TestSettingsThatAreInUseDoNotChange(t *testing.T) {
	r := embedded(t)
	m := r.start(compile(t, yearly), func(c *Config) {
		c.Kafka = func(s *sarama.Config) { s.Net.Proxy.Enable, s.Net.Proxy.Dialer = true, &inUse{t: t, settings: s} }
	})
	r.ready(m)
}
