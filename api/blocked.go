package api

// Blocked is the answer to GET /v1/blocked: a page of a partition's keys that have a verdict in force.
type Blocked struct {
	Partitions int32        `json:"partitions"` // of the topic
	Partition  int32        `json:"partition"`
	Keys       []BlockedKey `json:"keys"`
	Next       string       `json:"next,omitempty"` // the next page's after; "" on the last page
}

// BlockedKey is a key with a verdict in force.
type BlockedKey struct {
	Key   map[string]string `json:"key"`
	Rules []string          `json:"rules"`
}
