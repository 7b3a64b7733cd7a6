package topics

import (
	"strings"
	"testing"
)

func TestTheBrokersClock(t *testing.T) {
	onEach(t, func(t *testing.T, c cluster) {
		t.Run("the event topic has message.timestamp.type=LogAppendTime, which is checked at start", func(t *testing.T) {
			c.create(t, NamesOf(c.prefix).Events, 4, map[string]string{"message.timestamp.type": "CreateTime"})
			if _, err := c.ensure(t, Config{Partitions: 4}); err == nil || !strings.Contains(err.Error(), "message.timestamp.type=LogAppendTime") {
				t.Errorf("events with their producers' time: %v", err)
			}
		})
		t.Run("broker_time: create accepts a topic that can't have it", func(t *testing.T) {
			if _, err := c.ensure(t, Config{Partitions: 4, ProducerTime: true}); err != nil {
				t.Error(err)
			}
		})
	})
}
