package ruletest

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The parts of JUnit's XML that build servers read.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		File    string        `xml:"file,attr"`
		Line    int           `xml:"line,attr,omitempty"`
		Time    string        `xml:"time,attr"`
		Failure *junitFailure `xml:"failure,omitempty"`
		Error   *junitFailure `xml:"error,omitempty"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

func writeJUnit(path string, files []FileResult) error {
	var all junitSuites
	for i := range files {
		all.Suites = append(all.Suites, files[i].junit())
	}
	text, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(append([]byte(xml.Header), text...), '\n'), 0o644)
}

func (r *FileResult) junit() junitSuite {
	class := strings.TrimSuffix(filepath.Base(r.File), filepath.Ext(r.File))
	s := junitSuite{Name: r.File, Time: seconds(r.Took)}
	if r.Err != nil {
		s.Tests, s.Errors = 1, 1
		s.Cases = []junitCase{{Name: "load", Class: class, File: r.File, Time: "0",
			Error: &junitFailure{Message: "the file is invalid", Text: r.Err.Error()}}}
		return s
	}
	for _, res := range r.Results {
		c := junitCase{Name: res.Test.Name, Class: class, File: r.File, Line: res.Test.Line, Time: seconds(res.Took)}
		if len(res.Failures) > 0 {
			s.Failures++
			c.Failure = &junitFailure{Message: fmt.Sprintf("%d of %d expectations do not hold", len(res.Failures), len(res.Test.Expect))}
			for _, f := range res.Failures {
				c.Failure.Text += fmt.Sprintf("%s:%d: %s\n", r.File, f.Line, f.Text())
			}
		}
		s.Cases = append(s.Cases, c)
	}
	s.Tests = len(s.Cases)
	return s
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.6f", d.Seconds()) }
