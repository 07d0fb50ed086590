package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"turnkeeper/internal/bounds"
	"turnkeeper/internal/config/strictyaml"
)

// LoadOptions are the sources of settings.
type LoadOptions struct {
	// File is the config file, which must exist. Empty: the flag "config", else the variable
	// TURNKEEPER_CONFIG, else DefaultFile if it exists.
	File string
	// Env looks up a variable. Nil: os.LookupEnv.
	Env func(string) (string, bool)
	// Flags holds the given flags by name without dashes.
	Flags map[string]string
	// WithoutSecrets is for programs that need only the database's password: a secret that cannot be
	// read or used is added to Config.Missing instead of being an error.
	WithoutSecrets bool
}

// Load reads and checks the settings. The error joins all faults; each names the setting, the source of
// its value and what is accepted, and none contains a secret. On an error the Config is nil.
func Load(options LoadOptions) (*Config, error) {
	if options.Env == nil {
		options.Env = os.LookupEnv
	}
	l := &loader{LoadOptions: options, config: Default(), settings: Settings()}
	l.readFile()
	l.readEnvironment()
	l.readOTLPSecrets()
	l.readFlags()
	l.readShortcuts()
	l.checkTogether()
	if len(l.errs) > 0 {
		return nil, errors.Join(l.errs...)
	}
	return l.config, nil
}

// loader collects settings and faults.
type loader struct {
	LoadOptions
	config   *Config
	settings []Setting
	errs     []error

	loginKeyNamed bool // the config file sets mcp_login_key
}

func (l *loader) add(format string, args ...any) {
	l.errs = append(l.errs, fmt.Errorf(format, args...))
}

// lacks records a secret that cannot be read or used: in Missing with WithoutSecrets, else as a fault.
// The text follows the setting's name and contains no part of the secret.
func (l *loader) lacks(setting, text string, fault func(string)) {
	if !l.WithoutSecrets {
		fault(setting + text)
		return
	}
	l.config.Missing = append(l.config.Missing, MissingSecret{Setting: setting, Problem: setting + text})
}

// env returns a variable's value; ok is false if it is empty or not set.
func (l *loader) env(name string) (string, bool) {
	if name == "" {
		return "", false
	}
	value, _ := l.Env(name)
	return value, value != ""
}

func (l *loader) readEnvironment() {
	for _, s := range l.settings {
		for _, name := range []string{s.Env, s.AlsoEnv} {
			if value, ok := l.env(name); ok {
				l.set(s, name, value)
				break
			}
		}
	}
}

func (l *loader) readFlags() {
	l.config.lower = l.config.Bounds
	known := map[string]bool{}
	for _, s := range l.settings {
		known[s.Flag] = true
		if value, ok := l.Flags[s.Flag]; ok {
			l.set(s, "--"+s.Flag, value)
			l.config.flagged = append(l.config.flagged, func(c *Config) { _ = s.set(c, value) }) // checked by set above
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.Flags)) {
		if !known[name] {
			l.add("--%s is not the flag of a setting", name)
		}
	}
}

func (l *loader) set(s Setting, where, value string) {
	if err := s.set(l.config, value); err != nil {
		l.add("%s (%s)%s: %w", s.Name, where, shown(s, value), err)
	}
}

// shown returns " is VALUE", or "" for a secret.
func shown(s Setting, value string) string {
	switch {
	case s.secret:
		return ""
	case strings.TrimSpace(value) != value || value == "":
		return fmt.Sprintf(" is %q", value)
	default:
		return " is " + value
	}
}

// readFile reads the config file, if it exists.
func (l *loader) readFile() {
	path, named := l.filePath()
	source, err := readConfig(path)
	if errors.Is(err, os.ErrNotExist) && !named {
		return
	}
	if err != nil {
		if cause, ok := errors.AsType[*os.PathError](err); ok {
			err = cause.Err
		}
		l.add("the config file %s cannot be read: %w", path, err)
		return
	}
	l.config.File = path
	problems := &strictyaml.Problems{Path: path}
	l.decode(problems, string(source))
	l.errs = append(l.errs, problems.Errors()...)
}

// readConfig reads a file, and at most a byte more of it than strictyaml accepts.
func readConfig(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, strictyaml.MaxBytes+utf8.UTFMax)) // with a byte order mark
}

func (l *loader) filePath() (path string, named bool) {
	if l.File != "" {
		return l.File, true
	}
	if path := l.Flags["config"]; path != "" {
		return path, true
	}
	if path, ok := l.env("TURNKEEPER_CONFIG"); ok {
		return path, true
	}
	return DefaultFile, false
}

func (l *loader) decode(problems *strictyaml.Problems, source string) {
	source = strings.ReplaceAll(strings.TrimPrefix(source, "\ufeff"), "\r\n", "\n")
	document, err := strictyaml.Parse(source, 1)
	if err != nil {
		problems.AddSyntax(err)
	} else if document != nil {
		newFileReader(l, problems).read(document)
	}
}

// checkTogether checks settings against each other.
func (l *loader) checkTogether() {
	c := l.config
	if err := bounds.Check(c.Bounds); err != nil {
		l.errs = append(l.errs, err)
	}
	if c.Bounds.RoundCeiling < c.Bounds.MaxRounds {
		l.add("round_ceiling is %d: it must not be less than max_rounds, which is %d", c.Bounds.RoundCeiling,
			c.Bounds.MaxRounds)
	}
	if c.TakeoverAfter > c.Bounds.LeaseTTL {
		l.add("takeover_after is %s: it must not be more than lease_ttl, which is %s",
			strictyaml.FormatDuration(c.TakeoverAfter), strictyaml.FormatDuration(c.Bounds.LeaseTTL))
	}
	l.checkMCPLogins()
	l.checkProviderOf("default_model", c.DefaultModel)
	if c.ExtractionModel != "" {
		l.checkProviderOf("extraction_model", c.ExtractionModel)
	}
}

// checkProviderOf checks that the provider of a model is configured.
func (l *loader) checkProviderOf(setting, model string) {
	provider, _, _ := strings.Cut(model, "/")
	if _, ok := l.config.Providers[provider]; ok || provider == demo {
		return
	}
	text := fmt.Sprintf(" is %s: no provider %s is configured; %s", model, provider, howToConfigure(provider))
	fault := func(sentence string) { l.add("%s", sentence) }
	if !slices.ContainsFunc(shortcuts, func(s shortcut) bool { return s.provider == provider }) {
		fault(setting + text)
		return
	}
	l.lacks(setting, text, fault) // the variable of its key
}

func howToConfigure(provider string) string {
	i := slices.IndexFunc(shortcuts, func(s shortcut) bool { return s.provider == provider })
	if i < 0 {
		return "add it to providers in the config file"
	}
	return "set " + shortcuts[i].keyEnv + ", or add it to providers in the config file"
}
