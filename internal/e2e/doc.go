// Package e2e runs the real programs against a real Kafka and Redis, kills them, and compares
// what they have counted with a model that read the same records.
//
// Everything is in its tests. They are skipped unless TALLYGATE_TEST_KAFKA and
// TALLYGATE_TEST_REDIS name servers (see package internal/servers).
//
//	TALLYGATE_TEST_SEED     runs a test again with the seed that it printed
//	TALLYGATE_TEST_CLIENTS  1: also run the clients in Java and Python, which need both
//
// With -race the programs are built with the race detector too, and get fewer events.
package e2e
