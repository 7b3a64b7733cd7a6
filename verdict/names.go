package verdict

import "fmt"

var (
	stateNames = [...]string{Block: "block", Clear: "clear", Warn: "warn", Left: "left"}
	modeNames  = [...]string{Enforce: "enforce", Shadow: "shadow"}
)

// String returns the state's name on the wire: block, clear, warn or left.
func (s State) String() string { return name(stateNames[:], int(s)) }

// String returns the mode's name on the wire: enforce or shadow.
func (m Mode) String() string { return name(modeNames[:], int(m)) }

// ParseState is the inverse of State.String.
func ParseState(s string) (State, error) {
	i, err := parseName("state", stateNames[:], s)
	return State(i), err
}

// ParseMode is the inverse of Mode.String.
func ParseMode(s string) (Mode, error) {
	i, err := parseName("mode", modeNames[:], s)
	return Mode(i), err
}

// MarshalText makes a state a string in JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalText makes a mode a string in JSON.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *State) UnmarshalText(text []byte) (err error) {
	*s, err = ParseState(string(text))
	return err
}

// UnmarshalText reads what MarshalText wrote.
func (m *Mode) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMode(string(text))
	return err
}

func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}

func parseName(what string, names []string, s string) (int, error) {
	for i, n := range names {
		if n == s {
			return i, nil
		}
	}
	return 0, fmt.Errorf("verdict: unknown %s %.40q: want one of %q", what, s, names)
}
