package windows_test

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/windows"
)

func TestLoadZoneTakesTheEmbeddedDataOnly(t *testing.T) {
	t.Setenv("ZONEINFO", t.TempDir())
	zone, err := windows.LoadZone("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	if _, offset := time.Unix(0, 0).In(zone).Zone(); zone.String() != "Asia/Shanghai" || offset != 8*3600 {
		t.Errorf("zone %v is %d s from UTC", zone, offset)
	}
	for _, name := range []string{"Mars/Olympus", "Local", "Asia/", "../Asia/Shanghai", "asia/shanghai"} {
		if zone, err := windows.LoadZone(name); err == nil {
			t.Errorf("%q is %v", name, zone)
		}
		if _, err := windows.ZoneHash(name); err == nil {
			t.Errorf("%q has a hash", name)
		}
	}
	for _, name := range []string{"", "UTC"} {
		if zone, err := windows.LoadZone(name); err != nil || zone != time.UTC {
			t.Errorf("%q is %v, %v", name, zone, err)
		}
	}
}

func TestZoneHashIsOfWhatTheZoneDoes(t *testing.T) {
	seen := map[[32]byte]string{}
	for _, name := range []string{"UTC", "Asia/Shanghai", "Europe/Berlin"} {
		hash, err := windows.ZoneHash(name)
		if err != nil {
			t.Fatal(err)
		}
		if seen[hash] != "" {
			t.Errorf("%s and %s have one hash", name, seen[hash])
		}
		seen[hash] = name
	}
}
