package version

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// Version is the version of the module that the program was built from, or the revision and its date.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	if revision == "" {
		return fmt.Sprintf("devel (built by %s, which recorded no revision)", info.GoVersion)
	}
	text := revision[:min(len(revision), 12)]
	if settings["vcs.modified"] == "true" {
		text += "+changes"
	}
	if day, _, ok := strings.Cut(settings["vcs.time"], "T"); ok {
		text += " of " + day
	}
	return text
}
