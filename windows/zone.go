package windows

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"io"
	"sync"
	"time"
)

// ZoneVersion is the release of the IANA time zone database that is embedded: the DATA of
// Go's lib/time/update.bash, to be changed with the archive.
const ZoneVersion = "2025c"

// zoneZip is the IANA database as Go ships it. A copy of our own, since time/tzdata is only
// a fallback for what the system has, so that two machines could disagree about a midnight.
//
//go:generate sh -c "cp $(go env GOROOT)/lib/time/zoneinfo.zip zoneinfo.zip && chmod 644 zoneinfo.zip"
//go:embed zoneinfo.zip
var zoneZip []byte

// LoadZone returns the zone of an IANA name such as Asia/Shanghai, from the embedded database
// only: neither the system's files nor the environment change it. "" is UTC; there is no
// "Local".
func LoadZone(name string) (*time.Location, error) {
	if isUTC(name) {
		return time.UTC, nil
	}
	data, err := zoneData(name)
	if err != nil {
		return nil, fmt.Errorf("load zone %q: %w", name, err)
	}
	zone, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, fmt.Errorf("load zone %q: %w", name, err)
	}
	return zone, nil
}

// ZoneHash is of the zone's data: where it is the same, calendar windows in the zone are.
func ZoneHash(name string) ([sha256.Size]byte, error) {
	if isUTC(name) {
		return sha256.Sum256([]byte("UTC")), nil
	}
	data, err := zoneData(name)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("hash zone %q: %w", name, err)
	}
	return sha256.Sum256(data), nil
}

func isUTC(name string) bool { return name == "" || name == "UTC" }

func zoneData(name string) ([]byte, error) {
	files, err := zoneFiles()
	if err != nil {
		return nil, fmt.Errorf("open the embedded zone data: %w", err)
	}
	f := files[name]
	if f == nil {
		return nil, fmt.Errorf("no such zone in the IANA database %s", ZoneVersion)
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("open the embedded zone data: %w", err)
	}
	return io.ReadAll(r)
}

// zoneFiles is the archive's directory. It has hundreds of entries, and a rule set asks for a zone with
// each of its calendar windows: so it is read once.
var zoneFiles = sync.OnceValues(func() (map[string]*zip.File, error) {
	archive, err := zip.NewReader(bytes.NewReader(zoneZip), int64(len(zoneZip)))
	if err != nil {
		return nil, err
	}
	files := make(map[string]*zip.File, len(archive.File))
	for _, f := range archive.File {
		if !f.FileInfo().IsDir() {
			files[f.Name] = f
		}
	}
	return files, nil
})
