package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnkeeper/internal/config/strictyaml"
)

// A Setting is an entry of the table of settings.
type Setting struct {
	Name    string // key in the config file; MAPPING.KEY: in that mapping
	Env     string // environment variable
	AlsoEnv string // another variable, read if Env is not set; empty: none
	Flag    string // flag without dashes
	Group   string // heading in the reference
	Type    string // "whole number", "duration", "true or false", "text", "list"
	Unit    string // empty: none
	Bounds  string // what is accepted; empty: anything of its type
	Zero    string // meaning of 0 or an empty text; empty: refused, or nothing special
	Default string // in the form of the config file; empty: none
	Doc     string // what it does

	secret bool // errors do not repeat its value
	onlyAt bool // not a key of the config file: the path of that file
	set    func(*Config, string) error
	get    func(*Config) string
}

// Usage returns the text for the flag's help.
func (s Setting) Usage() string {
	// pflag uses text in backquotes as the name of the value
	usage := strings.ReplaceAll(strings.TrimSuffix(s.Doc, "."), "`", "")
	if s.Bounds != "" {
		usage += "; " + s.Bounds
	}
	return usage + " [" + s.Env + "]"
}

// Named returns the setting with a key of the config file. It panics if there is none.
func Named(key string) Setting {
	list := Settings()
	return list[slices.IndexFunc(list, func(s Setting) bool { return s.Name == key })]
}

// Check returns an error if the setting does not accept a value in the form of the config file. The error begins with
// "it", which stands for the value.
func (s Setting) Check(value string) error { return s.set(Default(), value) }

// IsBool reports whether the flag needs no value; without one it means true.
func (s Setting) IsBool() bool { return s.Type == "true or false" }

// Value returns the setting's value in c, in the form of the config file, with secrets masked.
func (s Setting) Value(c *Config) string { return s.get(c) }

// The functions below make settings of each type. Errors of set begin with "it": "it must be 1 to 20".

func number(field func(*Config) *int, low, high int, s Setting) Setting {
	s.Type, s.Bounds = "whole number", fmt.Sprintf("%d to %d", low, high)
	s.set = func(c *Config, text string) error {
		value, err := strictyaml.ParseInt(text)
		if err != nil {
			return fmt.Errorf("it %w", err)
		}
		if value < int64(low) || value > int64(high) {
			return fmt.Errorf("it must be %s", s.Bounds)
		}
		*field(c) = int(value)
		return nil
	}
	s.get = func(c *Config) string { return strconv.Itoa(*field(c)) }
	return s
}

// duration accepts low to high, and 0 if the setting's Zero gives it a meaning.
func duration(field func(*Config) *time.Duration, low, high time.Duration, s Setting) Setting {
	s.Type = "duration"
	s.Bounds = strictyaml.FormatDuration(low) + " to " + strictyaml.FormatDuration(high)
	if s.Zero != "" && low > 0 {
		s.Bounds = "0, or " + s.Bounds
	}
	s.set = func(c *Config, text string) error {
		value, err := strictyaml.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("it %w", err)
		}
		if (value < low || value > high) && (value != 0 || s.Zero == "") {
			return fmt.Errorf("it must be %s", s.Bounds)
		}
		*field(c) = value
		return nil
	}
	s.get = func(c *Config) string { return strictyaml.FormatDuration(*field(c)) }
	return s
}

func boolean(field func(*Config) *bool, s Setting) Setting {
	s.Type = "true or false"
	s.set = func(c *Config, text string) error {
		value, err := strictyaml.ParseBool(text)
		if err != nil {
			return fmt.Errorf("it %w", err)
		}
		*field(c) = value
		return nil
	}
	s.get = func(c *Config) string { return strconv.FormatBool(*field(c)) }
	return s
}

func text(field func(*Config) *string, check func(string) error, s Setting) Setting {
	s.Type = "text"
	s.set = func(c *Config, text string) error {
		if err := check(text); err != nil {
			return err
		}
		*field(c) = text
		return nil
	}
	s.get = func(c *Config) string { return *field(c) }
	return s
}

func choice(field func(*Config) *string, words []string, s Setting) Setting {
	s.Bounds = strings.Join(words, ", ")
	return text(field, func(word string) error { return oneOf(word, words) }, s)
}

// words reads a comma-separated list of words. "all" means every word.
func words(field func(*Config) *[]string, all []string, s Setting) Setting {
	s.Type, s.Bounds = "list", strings.Join(all, ", ")+"; or all"
	s.set = func(c *Config, text string) error {
		var list []string
		for word := range strings.SplitSeq(text, ",") {
			word = strings.TrimSpace(word)
			if word == "all" {
				list = append(list, all...)
				continue
			}
			if err := oneOf(word, all); err != nil {
				return fmt.Errorf("%w, or all", err)
			}
			list = append(list, word)
		}
		slices.Sort(list)
		*field(c) = slices.Compact(list)
		return nil
	}
	s.get = func(c *Config) string { return strings.Join(*field(c), ",") }
	return s
}

func oneOf(word string, words []string) error {
	if !slices.Contains(words, word) {
		return fmt.Errorf("it must be one of %s", strings.Join(words, ", "))
	}
	return nil
}

func anything(string) error { return nil }

func notEmpty(text string) error {
	if strings.TrimSpace(text) == "" {
		return errors.New("it must not be empty")
	}
	return nil
}
