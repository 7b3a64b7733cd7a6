package event

// Outcomes that gates and access logs give to requests. Services may have others of their own.
const (
	OutcomeSuccess = "success" // it was done
	OutcomeFailure = "failure" // it was tried, and went wrong
	OutcomeDenied  = "denied"  // whoever asked may not: a wrong password, a right that is missing
	// OutcomeLimited is that of what a limit denied: nothing happened. Rules do not count it, unless they
	// name it: a client that goes on asking would otherwise prolong its own block.
	OutcomeLimited = "limited"
)

// StatusOutcome is the outcome of a response's HTTP status. Gates, adapters and access logs share it;
// testdata/outcomes.json is its table, for programs in other languages.
func StatusOutcome(status int) string {
	switch {
	case status < 400:
		return OutcomeSuccess
	case status == 401, status == 403:
		return OutcomeDenied
	case status == 429:
		return OutcomeLimited
	}
	return OutcomeFailure
}
