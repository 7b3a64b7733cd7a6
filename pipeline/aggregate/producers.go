package aggregate

import (
	"encoding/hex"
	"fmt"

	"github.com/tallygate/tallygate/pipeline/event"
)

// An emitter heads its records with its instance and a sequence per partition. The partition
// keeps each instance's last one and so drops exactly what a retry put into the log twice.
type producers struct {
	last map[string]*producerRow
}

// producerRow is an instance's last sequence, and the broker time of its record.
type producerRow struct {
	Seq  uint64       `json:"seq"`
	Seen event.Micros `json:"seen_us"`
}

const (
	maxProducers    = 4096
	forgetProducers = event.Day // a retry is minutes late at most
)

func newProducers() producers { return producers{last: map[string]*producerRow{}} }

// repeated notes a record and reports whether it was seen before.
func (s *producers) repeated(instance []byte, seq uint64, broker event.Micros) bool {
	if row := s.last[string(instance)]; row != nil {
		if seq <= row.Seq {
			return true
		}
		row.Seq, row.Seen = seq, broker
		return false
	}
	if len(s.last) >= maxProducers {
		s.evict(broker)
	}
	s.last[string(instance)] = &producerRow{seq, broker}
	return false
}

// evict makes room: of what has expired, else of the instance that was silent longest.
func (s *producers) evict(broker event.Micros) {
	oldest, found := "", false
	for name, row := range s.last {
		if row.Seen < broker-forgetProducers {
			delete(s.last, name)
		} else if !found || row.Seen < s.last[oldest].Seen {
			oldest, found = name, true
		}
	}
	if len(s.last) >= maxProducers {
		delete(s.last, oldest)
	}
}

// snapshot writes the instances in hexadecimal: they are any bytes, and JSON's strings are not.
func (s *producers) snapshot() map[string]producerRow {
	rows := make(map[string]producerRow, len(s.last))
	for name, row := range s.last {
		rows[hex.EncodeToString([]byte(name))] = *row
	}
	return rows
}

func (s *producers) restore(rows map[string]producerRow) error {
	for text, row := range rows {
		name, err := hex.DecodeString(text)
		if err != nil {
			return fmt.Errorf("checkpoint record: producer %q: %w", text, err)
		}
		s.last[string(name)] = &row
	}
	return nil
}
