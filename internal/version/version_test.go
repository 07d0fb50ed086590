package version

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	vcs := func(more ...debug.BuildSetting) []debug.BuildSetting {
		return append([]debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-11-23T08:00:00Z"}}, more...)
	}
	for _, c := range []struct {
		info debug.BuildInfo
		want string
	}{
		{debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: vcs()}, "v1.2.3"},
		{debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: vcs()}, "0123456789ab of 2026-11-23"},
		{debug.BuildInfo{Settings: vcs(debug.BuildSetting{Key: "vcs.modified", Value: "true"})}, "0123456789ab+changes of 2026-11-23"},
		{debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "(devel)"}}, "devel (built by go1.26.0, which recorded no revision)"},
	} {
		if got := versionOf(&c.info); got != c.want {
			t.Errorf("%+v: %q, want %q", c.info, got, c.want)
		}
	}
}
