package deadletter

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// Read reads a record of the dead-letter topic. A malformed number is 0.
func Read(rec *kafkalog.Record) Letter {
	d := Letter{At: event.FromTime(rec.Time())}
	for headers := rec.Headers; ; {
		name, value, more := headers.Next()
		if !more {
			break
		}
		text := string(value)
		n, _ := strconv.ParseInt(text, 10, 64)
		switch string(name) {
		case "reason":
			d.Reason = text
		case "detail":
			d.Detail = text
		case "topic":
			d.Topic = text
		case "partition":
			d.Partition = int32(n)
		case "offset":
			d.Offset = n
		case "index":
			d.Index = append(d.Index, int(n))
		case "cut-from":
			if int(n) > len(rec.Value) { // else only the key was cut
				d.CutFrom = int(n)
			}
		case "headers-cut":
			d.HeadersCut = int(n)
		default:
			if key, own := strings.CutPrefix(string(name), "header:"); own {
				header := Header{Key: key}
				header.Value, header.Value64 = textOrBytes(value)
				d.Headers = append(d.Headers, header)
			}
		}
	}
	d.Value, d.Value64 = textOrBytes(rec.Value)
	return d
}

// textOrBytes returns a value as JSON has it: a string if it is UTF-8, else bytes.
func textOrBytes(value []byte) (text *string, raw []byte) {
	if !utf8.Valid(value) {
		return nil, value
	}
	s := string(value)
	return &s, nil
}

// Producer is how whoever sent the record calls itself; "" if it does not say.
func (l *Letter) Producer() string {
	for _, name := range []string{event.HeaderClient, "ce_source"} {
		for _, h := range l.Headers {
			if strings.EqualFold(h.Key, name) && h.Value != nil {
				return *h.Value
			}
		}
	}
	return ""
}
