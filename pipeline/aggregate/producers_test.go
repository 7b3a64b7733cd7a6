package aggregate

import (
	"encoding/json"
	"testing"
)

// An instance is any bytes. In the checkpoint's JSON it once became U+FFFD, so that after a
// takeover every record that an emitter had sent twice was counted again.
func TestProducersOutliveTheirCheckpoint(t *testing.T) {
	before, after := newProducers(), newProducers()
	instance := []byte{0xff, 0, 0xfe, '"', 0x80}
	before.repeated(instance, 7, 0)
	text, err := json.Marshal(checkpoint{Version: checkpointVersion, Producers: before.snapshot()})
	if err != nil {
		t.Fatal(err)
	}
	c, err := decodeCheckpoint(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := after.restore(c.Producers); err != nil {
		t.Fatal(err)
	}
	if !after.repeated(instance, 7, 0) || after.repeated(instance, 8, 0) {
		t.Errorf("the new owner knows %v", after.last)
	}
}
