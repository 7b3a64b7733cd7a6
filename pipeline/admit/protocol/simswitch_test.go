package protocol

import (
	"reflect"
	"testing"
	"unsafe"
)

// needs says for each rule which faults show fastest that it is needed, all if there are none, and
// which seed. When the protocol changes, another one may be the first: the test searches on.
var needs = map[string]struct {
	seed   uint64
	faults []fault
}{
	"moves":       {196, []fault{faultSplit, faultClock}},
	"spent":       {1, []fault{faultTwice, faultSlow}},
	"waits":       {7, nil},
	"returnWaits": {1, []fault{faultOwner}},
	"merge":       {1, []fault{faultOwner, faultRedis}},
	"answer":      {2, []fault{faultSlow, faultPause}},
	"before":      {86, []fault{faultSlow, faultPause, faultEnforcer}},
	"cancels":     {1, []fault{faultTwice}},
	"forwards":    {1, []fault{faultOwner, faultZombie}},
	"gap":         {20, []fault{faultCompact, faultRedis}},
	"keyClock":    {3, []fault{faultStranger, faultSkew}},
	"settledAt":   {1, []fault{faultDrop, faultSlow, faultEnforcer}},
	"setBack":     {24, []fault{faultClock, faultSlow, faultPause, faultDrop}},
	"forgets":     {1, []fault{faultClock}},
	"first":       {36, []fault{faultRules}},
	"formers":     {7, []fault{faultRules, faultSlow}},
	"gone":        {35, nil},
	"holds":       {2, []fault{faultHolds, faultSplit}},
	"shortened":   {406, []fault{faultHolds, faultSplit, faultRules}},
	"shardClock":  {116, nil},
	"order":       {2, nil},
	"lostFormers": {95, []fault{faultRules, faultDrop, faultSlow, faultEnforcer}},
}

// TestEachRuleIsNeeded switches the rules of the protocol off, one at a time: the simulation notices.
// A rule that it does not miss is not tested, or not needed.
func TestEachRuleIsNeeded(t *testing.T) {
	v := reflect.ValueOf(&off).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		t.Run(name, func(t *testing.T) {
			*(*bool)(unsafe.Pointer(v.Field(i).UnsafeAddr())) = true
			defer func() { off = switches{} }()
			steps, need := 0, needs[name]
			for seed := max(1, need.seed); steps < 60_000_000; seed++ {
				faults := need.faults
				if faults == nil {
					faults = faultsOf(seed)
				}
				s := simulate(seed, faults, false)
				steps += s.steps
				if s.bad != "" {
					t.Logf("after %d steps of seed %d: %s", steps, seed, s.bad)
					return
				}
			}
			t.Errorf("nothing was noticed in %d steps", steps)
		})
	}
}
