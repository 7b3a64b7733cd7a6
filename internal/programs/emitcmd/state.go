package emitcmd

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// state is the progress of a followed file, as it stands in the state file. What it says is in Kafka, and perhaps
// more: that is sent again after a kill, at the same positions, and counts once.
type state struct {
	Version  int    `json:"version"`
	File     string `json:"file"`
	Topic    string `json:"topic"`
	Instance string `json:"instance"` // 32 hexadecimal digits, drawn when the state began
	Position int64  `json:"position"` // bytes read since then
	place
	Saved time.Time `json:"saved"`
}

const stateVersion = 1

// stateFile is a state file that no other process has.
type stateFile struct {
	path string
	lock *os.File
}

// openState locks the state file, and reads it. There is none yet if the state's Version is 0.
func openState(path string) (*stateFile, *state, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the folder of the state file: %w; name another file by --state FILE", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("lock the state file: %w; name another file by --state FILE", err)
	}
	s := &stateFile{path, lock}
	if err := lockFile(lock); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("lock the state file %s: %w", path, err), lock.Close())
	}
	st, err := readState(path)
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, st, nil
}

func readState(path string) (*state, error) {
	var st state
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &st, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	if err == nil {
		err = st.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("read the state file %s: %w; if you remove it, --from says where to begin", path, err)
	}
	return &st, nil
}

func (s *state) validate() error {
	id, err := hex.DecodeString(s.Instance)
	switch {
	case s.Version != stateVersion:
		return fmt.Errorf("it has version %d, this program reads %d", s.Version, stateVersion)
	case err != nil || len(id) != 16 || s.Position < 0 || s.Offset < 0 || s.Head < 0 || s.Head > headBytes:
		return errors.New("it is damaged")
	}
	return nil
}

// matches returns an error if the state is that of another file or topic.
func (s *state) matches(file, topic string) error {
	if s.File == file && s.Topic == topic {
		return nil
	}
	return fmt.Errorf("the state is of %s, sent to %s; name another file by --state FILE", s.File, s.Topic)
}

// save replaces the state file, which is whole also after a crash.
func (s *stateFile) save(st *state) error {
	text, err := json.MarshalIndent(st, "", "  ")
	if err != nil {
		return err
	}
	next := s.path + ".next"
	if err := writeSynced(next, append(text, '\n')); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	if err := os.Rename(next, s.path); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	folder, err := os.Open(filepath.Dir(s.path))
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return errors.Join(folder.Sync(), folder.Close())
}

func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// Close unlocks the state file. The lock stays where it is: another process may wait for it.
func (s *stateFile) Close() error { return s.lock.Close() }

// newState begins a state.
func newState(file, topic string) *state {
	var instance [16]byte
	_, _ = rand.Read(instance[:]) // never fails
	return &state{Version: stateVersion, File: file, Topic: topic, Instance: hex.EncodeToString(instance[:])}
}

// defaultState returns the path of a file's state: in the folder that systemd gives a service, or the user's, or, for
// root, the machine's.
func defaultState(getenv func(string) string, uid int, file, topic string) (string, error) {
	folder := getenv("STATE_DIRECTORY")
	if xdg, home := getenv("XDG_STATE_HOME"), getenv("HOME"); folder == "" {
		switch {
		case xdg != "":
			folder = filepath.Join(xdg, "tallygate")
		case uid == 0:
			folder = "/var/lib/tallygate"
		case home != "":
			folder = filepath.Join(home, ".local/state/tallygate")
		default:
			return "", errors.New("where is the state to be? --state FILE, or set XDG_STATE_HOME or HOME")
		}
	}
	sum := sha256.Sum256([]byte(file + "\n" + topic))
	return filepath.Join(folder, fmt.Sprintf("emit-%s-%x.json", filepath.Base(file), sum[:6])), nil
}

// lineID names a line: the same whenever it is sent, and another one for an equal line.
func lineID(instance []byte, position int64) string {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(append([]byte(nil), instance...), uint64(position)))
	return hex.EncodeToString(sum[:16])
}
