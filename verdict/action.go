package verdict

import "slices"

// Action is an enforcer's reaction to a request that a verdict covers. A greater Action is a stronger one.
type Action uint8

// The actions, weakest first.
const (
	ActLog Action = iota
	ActThrottle
	ActChallenge
	ActBlock
)

var actionNames = [...]string{ActLog: "log", ActThrottle: "throttle", ActChallenge: "challenge", ActBlock: "block"}

// ActionNames are the names of all actions, the strongest first: what rule files and tests may say.
func ActionNames() []string {
	names := slices.Clone(actionNames[:])
	slices.Reverse(names)
	return names
}

// String returns the action's name on the wire: log, throttle, challenge or block.
func (a Action) String() string { return name(actionNames[:], int(a)) }

// ParseAction is the inverse of Action.String.
func ParseAction(s string) (Action, error) {
	i, err := parseName("action", actionNames[:], s)
	return Action(i), err
}

// MarshalText makes an action a string in JSON.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (a *Action) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAction(string(text))
	return err
}
