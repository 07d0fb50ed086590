// Package version tells which source a program was built from.
package version

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// stamp is "VERSION COMMIT TIME", set by the linker for builds without a repository: `make release` and
// the Dockerfile pass -X turnkeeper/internal/version.stamp.
var stamp string

// Version returns the version; without one, the commit and its date; without a commit, "devel".
func Version() string {
	b := read()
	if b.version != "" {
		return b.version
	}
	if b.commit == "" {
		return "devel"
	}
	return b.source()
}

// Long returns the version with commit, date, compiler and platform.
func Long() string { return read().long() }

// A build describes the source and compiler of a program.
type build struct {
	version, commit, day string
	modified             bool
	toolchain, platform  string
}

func read() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return parse(info, stamp)
}

// parse returns the build recorded by the go command, overridden by a stamp.
func parse(info *debug.BuildInfo, stamp string) build {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	b := build{
		version: info.Main.Version, commit: settings["vcs.revision"], day: settings["vcs.time"],
		modified:  settings["vcs.modified"] == "true",
		toolchain: info.GoVersion, platform: settings["GOOS"] + "/" + settings["GOARCH"],
	}
	if f := strings.Fields(stamp); len(f) == 3 {
		b.version, b.commit, b.day, b.modified = f[0], f[1], f[2], false
	}
	if b.version == "(devel)" {
		b.version = ""
	}
	b.commit = b.commit[:min(len(b.commit), 12)]
	b.day, _, _ = strings.Cut(b.day, "T")
	return b
}

func (b build) source() string {
	text := b.commit
	if b.modified {
		text += "+changes"
	}
	if b.day != "" {
		text += " of " + b.day
	}
	return text
}

func (b build) long() string {
	source := "commit unknown"
	if b.commit != "" {
		source = "commit " + b.source()
	}
	name := b.version
	if name == "" {
		name = "devel"
	}
	return fmt.Sprintf("%s (%s, %s, %s)", name, source, b.toolchain, b.platform)
}
