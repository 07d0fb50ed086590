package shell

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper/internal/config"
	"turnkeeper/internal/config/strictyaml"
)

// flags are a program's flags for settings.
type flags []*settingFlag

// A settingFlag is the flag of a setting. It keeps the text: package config
// validates it.
type settingFlag struct {
	setting config.Setting
	text    string
	given   bool
}

func (f *settingFlag) String() string { return f.text }

func (f *settingFlag) Set(text string) error {
	f.text, f.given = text, true
	return nil
}

// Type returns the placeholder of the value in --help.
func (f *settingFlag) Type() string {
	switch f.setting.Type {
	case "whole number":
		return "n"
	case "true or false":
		return "bool"
	default:
		return f.setting.Type
	}
}

// ReaderSettings are the settings of programs that only use the database.
var ReaderSettings = []string{"config", "database_url", "data_dir", "agents_dir", "log_level"}

// AddSettings adds a flag for each named setting, or for all if none is named.
func (s *Session) AddSettings(cmd *cobra.Command, names ...string) {
	cmd.Flags().SortFlags, cmd.PersistentFlags().SortFlags = false, false
	for _, setting := range config.Settings() {
		if len(names) > 0 && !slices.Contains(names, setting.Name) {
			continue
		}
		f := &settingFlag{setting: setting}
		s.flags = append(s.flags, f)
		usage := setting.Usage()
		switch {
		case setting.Name == "database_url":
			usage =
				"The Postgres to use. Prefer the variable: other users of this machine can read command lines [DATABASE_URL, " + setting.Env + "]"
		case setting.Name == "log_level" && len(names) > 0:
			setting.Default = quietLevel
			usage = "The minimum level of this command's log (" + setting.Bounds + ")"
		}
		flag := cmd.PersistentFlags().VarPF(f, setting.Flag, "", usage)
		flag.DefValue = setting.Default
		group := "Settings: " + setting.Group
		if len(names) > 0 {
			group = "Settings"
		}
		flag.Annotations = map[string][]string{groupAnnotation: {group}}
		if !setting.IsBool() {
			continue
		}
		flag.NoOptDefVal = "true"
		if setting.Default == "true" {
			off := cmd.PersistentFlags().VarPF(&offFlag{settingFlag: f}, "no-"+setting.Flag, "",
				"The same as --"+setting.Flag+"=false")
			off.NoOptDefVal, off.DefValue, off.Annotations = "true", "", flag.Annotations
		}
	}
}

// An offFlag is --no-NAME: it sets the opposite of its value.
type offFlag struct {
	*settingFlag
	off string
}

func (f *offFlag) String() string { return f.off }

func (f *offFlag) Set(text string) error {
	off, err := strictyaml.ParseBool(text)
	if err != nil {
		return fmt.Errorf("it %w", err)
	}
	f.off = text
	return f.settingFlag.Set(strconv.FormatBool(!off))
}

// LoadConfig reads the settings. Its errors have the exit code ExitUsage. A missing secret is an error only with
// NeedsSecrets.
func (s *Session) LoadConfig() (*config.Config, error) {
	given := map[string]string{}
	for _, f := range s.flags {
		if f.given {
			given[f.setting.Flag] = f.text
		}
	}
	cfg, err := config.Load(config.LoadOptions{Env: s.Getenv, Flags: given, WithoutSecrets: !s.NeedsSecrets})
	if err != nil {
		return nil, &ExitError{ExitUsage, settingsError(err)}
	}
	s.Masker = cfg.Masker()
	return cfg, nil
}

// GivenSettings returns the flags of settings that were given, for another program.
func (s *Session) GivenSettings() (flags []string) {
	for _, f := range s.flags {
		if f.given {
			flags = append(flags, "--"+f.setting.Flag+"="+f.text)
		}
	}
	return flags
}

// settingsError puts each of several errors on a line.
func settingsError(err error) error {
	lines := strings.Split(err.Error(), "\n")
	if len(lines) == 1 {
		return err
	}
	return errors.New("the settings have these errors:\n  " + strings.Join(lines, "\n  "))
}

const quietLevel = "warn"

// quiet returns cfg with the log level warn, unless a flag sets the level.
func (s *Session) quiet(cfg *config.Config) *config.Config {
	for _, f := range s.flags {
		if f.setting.Name == "log_level" && f.given {
			return cfg
		}
	}
	quiet := *cfg
	quiet.LogLevel = quietLevel
	return &quiet
}
