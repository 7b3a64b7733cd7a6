package enforcer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/enforce"
)

// answersFile is the YAML of --answers: the responses to denied requests of proxies.
type answersFile struct {
	Status            int                   `yaml:"status"`
	Type              string                `yaml:"type"`
	Title             string                `yaml:"title"`
	UnavailableStatus int                   `yaml:"unavailable-status"`
	RateLimit         *bool                 `yaml:"rate-limit"` // absent: true
	XRateLimit        bool                  `yaml:"x-rate-limit"`
	Messages          map[string]string     `yaml:"messages"`
	Rules             map[string]publicRule `yaml:"rules"`
}

type publicRule struct {
	Name     string            `yaml:"name"`
	Messages map[string]string `yaml:"messages"`
}

// readAnswers reads the file. Without a file, "", it returns the default answers.
func readAnswers(path string) (enforce.Answers, error) {
	if path == "" {
		return enforce.Answers{}, nil
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return enforce.Answers{}, fmt.Errorf("read the answers: %w", err)
	}
	a, err := parseAnswers(src)
	if err != nil {
		err = fmt.Errorf("--answers %s: %w", path, err)
	}
	return a, err
}

func parseAnswers(src []byte) (a enforce.Answers, err error) {
	var f answersFile
	d := yaml.NewDecoder(bytes.NewReader(src))
	d.KnownFields(true)
	if err := d.Decode(&f); errors.Is(err, io.EOF) {
		return a, errors.New("it is empty")
	} else if err != nil {
		return a, err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return a, errors.New("there is more after its first document")
	}
	a = enforce.Answers{
		Status: f.Status, Type: f.Type, Title: f.Title, UnavailableStatus: f.UnavailableStatus,
		NoRateLimit: f.RateLimit != nil && !*f.RateLimit, XRateLimit: f.XRateLimit,
		Messages: f.Messages, Rules: map[string]enforce.PublicRule{},
	}
	for rule, public := range f.Rules {
		a.Rules[rule] = enforce.PublicRule(public)
	}
	return a, a.Validate()
}
