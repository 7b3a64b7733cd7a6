package console

// topKeys are the keys with the highest counts among those that a rule has verdicts for; nil without a blocklist.
func (r *request) topKeys(string) *table { return nil }

// pardons are the commands that took verdicts of a rule back; nil without an audit.
func (r *request) pardons(string) *table { return nil }
