package console

import "sync"

// examRoom has the doctor's latest report. One examination runs at a time.
type examRoom struct {
	mu sync.Mutex
}
