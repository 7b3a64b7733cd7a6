package shard

import "testing"

// A log has lost something of an epoch if that ends before what was counted, or has other records
// in its place. What is lost is found with the checkpoint's epoch 5, which begins at 10.
func TestWhereALogWasCut(t *testing.T) {
	for name, tt := range map[string]struct {
		next  int64
		is    EpochEnd
		older bool // the checkpoint has no epochs
		at    int64
		cut   bool
	}{
		"not asked":                        {next: 20},
		"an older program's checkpoint":    {next: 20, is: EpochEnd{true, 5, 15}, older: true},
		"all is there":                     {next: 20, is: EpochEnd{true, 5, 20}},
		"one is gone":                      {next: 20, is: EpochEnd{true, 5, 19}, at: 19, cut: true},
		"all of the epoch is gone":         {next: 20, is: EpochEnd{true, 4, 10}, at: 10, cut: true},
		"and some of before":               {next: 20, is: EpochEnd{true, 4, 7}, at: 7, cut: true},
		"others are in its place":          {next: 20, is: EpochEnd{true, 4, 30}, at: 10, cut: true},
		"so they are from the first epoch": {next: 20, is: EpochEnd{true, 0, 30}, at: 10, cut: true},
		"the log has no epochs, and more":  {next: 20, is: EpochEnd{true, -1, 30}},
		"the log has no epochs, and less":  {next: 20, is: EpochEnd{true, -1, 9}, at: 9, cut: true},
		"the leader does not know":         {next: 20, is: EpochEnd{true, 4, -1}},
		"the log is empty":                 {next: 20, is: EpochEnd{true, 4, 0}, at: 0, cut: true},
		"nothing counted: all is there":    {next: 10, is: EpochEnd{true, 4, 10}},
		"nothing counted: one is gone":     {next: 10, is: EpochEnd{true, 4, 9}, at: 9, cut: true},
		"nothing counted, and not known":   {next: 10, is: EpochEnd{true, 4, -1}},
		"nothing counted, an empty log":    {next: 10, is: EpochEnd{true, 4, 0}, at: 0, cut: true},
	} {
		s := oneLimit(t)
		c := &checkpoint{Next: [Sources]int64{Input: tt.next}, Epochs: &Epochs{Is: [Sources]int32{Input: 5}, From: [Sources]int64{Input: 10}}}
		if tt.older {
			c.Epochs = nil
		}
		if at, cut := s.takeover.cutAt(Input, c, tt.is); cut != tt.cut || cut && at != tt.at {
			t.Errorf("%s: cut at %d: %t, want %d: %t", name, at, cut, tt.at, tt.cut)
		}
	}
}

// What a key had reached that is deleted by now is not held against the log: its offsets may be those of another one.
func TestDeletedKeysDoNotCutALog(t *testing.T) {
	s := oneLimit(t)
	state := func(next int64) []byte {
		return appendWire(nil, nil, appendBlockHeader(nil, &block{applied: [Sources]applied{{next: next}}}))
	}
	c := &checkpoint{Next: [Sources]int64{Input: 12}, Epochs: &Epochs{Is: [Sources]int32{Input: 5}, From: [Sources]int64{Input: 10}}}
	for i, tt := range []struct {
		key   string
		value []byte
		cut   bool
	}{
		{"uid=1", state(20), false},
		{"uid=2", state(21), true},
		{"uid=2", nil, false},
		{"uid=3", state(30), true},
		{"uid=3", state(0), false}, // offsets have started over
	} {
		if err := load(s, int64(i), tt.key, tt.value); err != nil {
			t.Fatal(err)
		}
		if at, cut := s.takeover.cutAt(Input, c, EpochEnd{true, 5, 20}); cut != tt.cut || cut && at != 20 {
			t.Errorf("record %d: cut at %d: %t, want %t", i, at, cut, tt.cut)
		}
	}
}

// Fuses that have blown stay so under the same version of the same rules only.
func TestBlownFusesAreOfTheirRules(t *testing.T) {
	set := compile(t, `
  rules:
    - {name: r, match: {api: "*"}, limit: 2, per: 1h, fuse: 5%, then: {block: 1h}}`)
	rs := Rules{Number: 3, Published: 3, Set: set}
	for name, tt := range map[string]struct {
		c    checkpoint
		want int
	}{
		"the same":        {checkpoint{RulesAt: 3, Rules: rs.hash(), Blown: []string{"r"}}, 1},
		"none":            {checkpoint{RulesAt: 3, Rules: rs.hash()}, 0},
		"another rule":    {checkpoint{RulesAt: 3, Rules: rs.hash(), Blown: []string{"s"}}, 0},
		"loaded again":    {checkpoint{RulesAt: 2, Rules: rs.hash(), Blown: []string{"r"}}, 0},
		"another content": {checkpoint{RulesAt: 3, Rules: "00", Blown: []string{"r"}}, 0},
	} {
		s := New(Config{Of: 1}, rs)
		if s.judge.blowAgain(&tt.c); len(s.judge.BlownRules()) != tt.want || len(s.log.out.Notes) != tt.want {
			t.Errorf("%s: %v have blown", name, s.judge.BlownRules())
		}
	}
}
