package shell

import (
	"time"

	"github.com/spf13/pflag"

	"turnkeeper/internal/config/strictyaml"
)

// DurationFlag adds a flag with the syntax of duration settings: a bare number
// is seconds. standard is the default.
func DurationFlag(f *pflag.FlagSet, to *time.Duration, name string, standard time.Duration, usage string) {
	*to = standard
	f.Var((*durationValue)(to), name, usage)
}

type durationValue time.Duration

func (d *durationValue) Set(text string) error {
	value, err := strictyaml.ParseDuration(text)
	if err == nil {
		*d = durationValue(value)
	}
	return err
}

// Type returns the placeholder of the value in --help.
func (d *durationValue) Type() string { return "duration" }

func (d *durationValue) String() string {
	if *d == 0 {
		return "0" // --help omits this default
	}
	return time.Duration(*d).String()
}
