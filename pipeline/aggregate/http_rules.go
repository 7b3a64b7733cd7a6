package aggregate

// overview answers what is asked about this instance, and about no key.
type overview struct{ *instance }

// runningRules is the answer to GET /v1/rules: the version of the group's rules that this instance runs, as it
// was published.
type runningRules struct {
	Version int64 `json:"version"`
	ruleRecord
}
