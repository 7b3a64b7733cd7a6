// Package e2e runs the real programs against a real Kafka and Redis, kills them, and compares
// what they have counted with a model that read the same records.
//
// Everything is in its tests. They are skipped unless TALLYGATE_TEST_KAFKA and
// TALLYGATE_TEST_REDIS name servers (see package internal/testing/servers).
//
//	TALLYGATE_TEST_SEED     runs a test again with the seed that it printed
//	TALLYGATE_TEST_NIGHTLY  suites of scripts/suites, as in kills,clients: also run their tests
//
// TestChaos plays plans of faults that are drawn from seeds: `make chaos` for as many as you like
// and of any size, a short one among the other tests. A plan is what chaos_plan_test.go draws; the
// faults are in fault_*_test.go, one function each; a gate is the network between two programs.
//
// With -race the programs are built with the race detector too, and get fewer events.
package e2e
