// Package testdata is input that tests share, and that `tallygate dev` replays.
package testdata

import _ "embed"

// AccessLog is 10,000 requests to a public web server, gzipped: see README.md for its origin.
//
//go:embed apache_logs.gz
var AccessLog []byte
