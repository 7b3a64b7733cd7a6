package ops

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/rules/didyoumean"
)

// What package flag says of a mistake, in words for those who wrote its code.
var (
	badValue  = regexp.MustCompile(`^invalid (?:boolean )?value ("(?:[^"\\]|\\.)*") for (?:flag )?-([^:]+): (?s:(.*))$`)
	noValue   = regexp.MustCompile(`^flag needs an argument: -(.+)$`)
	noOption  = regexp.MustCompile(`^flag provided but not defined: -(.+)$`)
	badSyntax = regexp.MustCompile(`^bad flag syntax: (.+)$`)
)

// told rewrites an error of package flag: with options as people write them, and their values.
func (o *Options) told(err error) error {
	text := err.Error()
	if m := badValue.FindStringSubmatch(text); m != nil {
		value, _ := strconv.Unquote(m[1]) // as it was quoted by package flag
		return fmt.Errorf("%s %q: %w", Dashed(m[2]), value, o.wants(m[2], value, errors.New(m[3])))
	}
	if m := noValue.FindStringSubmatch(text); m != nil {
		arg, _ := flag.UnquoteUsage(o.Lookup(m[1]))
		return fmt.Errorf("%s needs a value: %s", Dashed(m[1]), arg)
	}
	if m := noOption.FindStringSubmatch(text); m != nil {
		name, _, _ := strings.Cut(m[1], "=")
		var all []string
		o.VisitAll(func(f *flag.Flag) { all = append(all, Dashed(f.Name)) })
		return fmt.Errorf("there is no option %s%s", Dashed(name), didyoumean.Hint(Dashed(name), all))
	}
	if m := badSyntax.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("%s is no option: they are written --name value", m[1])
	}
	return err
}

// withHelp adds to a mistake where all options are.
func withHelp(err error) error {
	if strings.HasSuffix(err.Error(), "?") {
		return fmt.Errorf("%w --help lists the options", err)
	}
	return fmt.Errorf("%w; --help lists the options", err)
}

// wants describes an option's values; err, unless package flag's types read the value.
func (o *Options) wants(name, value string, err error) error {
	f := o.Lookup(name)
	if f == nil {
		return err
	}
	getter, ok := f.Value.(flag.Getter)
	if !ok {
		return err
	}
	switch getter.Get().(type) {
	case bool:
		return errors.New("want true or false")
	case time.Duration:
		if _, err := strconv.ParseFloat(value, 64); err == nil {
			return fmt.Errorf("want a time with its unit, such as %ss", value)
		}
		return errors.New("want a time, such as 500ms, 30s, 5m or 1h30m")
	case int, int64:
		return errors.New("want a whole number")
	case uint, uint64:
		return errors.New("want a whole number, 0 or more")
	case float64:
		return errors.New("want a number")
	}
	return err
}

// CheckAddress returns an error unless a text is HOST:PORT.
func CheckAddress(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		if _, portErr := strconv.ParseUint(port, 10, 16); portErr == nil {
			return nil
		}
	}
	return fmt.Errorf("%q is not HOST:PORT, as in localhost:9092", text)
}
