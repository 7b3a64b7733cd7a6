package api

// Whoami is the answer to GET /v1/whoami: whose credential a request has.
type Whoami struct {
	Credential string `json:"credential"` // token, certificate, issuer or none
	Name       string `json:"name"`
	Role       string `json:"role"` // viewer, operator or admin
}
