package windows_test

import (
	"fmt"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/windows"
)

// Three orders a day, of days in Shanghai.
func Example() {
	zone, err := windows.LoadZone("Asia/Shanghai")
	if err != nil {
		fmt.Println(err)
		return
	}
	spec := windows.Spec{Kind: windows.Calendar, Unit: windows.Day, Zone: zone, Lateness: event.Hour}
	if err := spec.Validate(); err != nil {
		fmt.Println(err)
		return
	}

	limit := 3 * event.One
	now := event.FromTime(time.Date(2026, time.November, 21, 10, 0, 0, 0, zone))
	var state []byte // one key's
	for range 3 {
		var added windows.Added
		state, added = spec.Add(state, now, event.One)
		fmt.Println(now.Time().In(zone).Format(time.TimeOnly), added.Count, added.Count >= limit)
		now += event.Minute
	}
	fmt.Println("below again from", spec.Below(state, limit).Time().In(zone))
	// Output:
	// 10:00:00 1 false
	// 10:01:00 2 false
	// 10:02:00 3 true
	// below again from 2026-11-22 00:00:00 +0800 CST
}

func ExampleSpec_Add() {
	spec := windows.Spec{Kind: windows.Tumbling, Per: event.Minute, Lateness: event.Hour}
	if err := spec.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	state := make([]byte, 0, spec.MaxBytes()) // no Add allocates
	for _, at := range []event.Micros{50 * event.Second, 70 * event.Second, 59 * event.Second, -event.Second} {
		var added windows.Added
		state, added = spec.Add(state, at, event.One)
		fmt.Printf("%+v\n", added)
	}
	// Output:
	// {Late:false Ended:false Known:false Count:1}
	// {Late:false Ended:false Known:false Count:1}
	// {Late:false Ended:true Known:false Count:2}
	// {Late:true Ended:false Known:false Count:1}
}

func ExampleSpec_Below() {
	spec := windows.Spec{Kind: windows.Sliding, Per: 5 * event.Second, Exact: true}
	if err := spec.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	var state []byte
	for _, at := range []event.Micros{0, 1, 2, 3} {
		state, _ = spec.Add(state, at*event.Second, event.One)
	}
	fmt.Println("fewer than 3 from", spec.Below(state, 3*event.One).Duration())
	fmt.Println("fewer than 1 from", spec.Below(state, event.One).Duration())
	// Output:
	// fewer than 3 from 6s
	// fewer than 1 from 8s
}
