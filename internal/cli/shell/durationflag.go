package shell

import (
	"time"

	"github.com/spf13/pflag"

	"turnkeeper/internal/config/strictyaml"
)

// DurationFlag adds a flag that is written as durations of settings are: a bare
// number is seconds.
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

// Type is the word for the value in --help.
func (d *durationValue) Type() string { return "duration" }

func (d *durationValue) String() string {
	if *d == 0 {
		return "0" // which --help does not show as a default
	}
	return time.Duration(*d).String()
}
