package ask

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/tallygate/tallygate/api"
)

// grantRequest is an api.Grant as it is read: a key may be text.
type grantRequest struct {
	api.Grant
	Key keyDims `json:"key"`
}

// ServeGrant answers POST /v1/grants: the command grant by another door, for what payments' webhooks say. It needs an
// id, as these repeat what was not answered in time, and nobody may be granted twice what was paid once.
func (a *commands) ServeGrant(w http.ResponseWriter, r *http.Request) {
	var of grantRequest
	_, err := readCommand(w, r, &of)
	if err == nil && of.ID == "" {
		err = errors.New("a grant needs an id, such as that of the payment: the same one again grants nothing more")
	}
	req := commandRequest{Key: of.Key, Command: api.Command{
		Command: api.KindGrant, Rule: of.Rule, Amount: of.Amount, Until: of.Until, ID: of.ID, Reason: of.Reason,
	}}
	sent := req.Command // the owner reads the key as an object
	sent.Key = byName(of.Key)
	body, wrong := json.Marshal(&sent)
	a.serve(w, r, &req, body, errors.Join(err, wrong))
}
