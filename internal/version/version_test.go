package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestLong(t *testing.T) {
	t.Parallel()
	settings := func(more ...debug.BuildSetting) []debug.BuildSetting {
		return append([]debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "arm64"}}, more...)
	}
	vcs := settings(debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef"},
		debug.BuildSetting{Key: "vcs.time", Value: "2026-11-23T08:00:00Z"})
	for name, c := range map[string]struct {
		info  debug.BuildInfo
		stamp string
		want  string
	}{
		"a tag": {
			info: debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.3"}, Settings: vcs},
			want: "v1.2.3 (commit 0123456789ab of 2026-11-23, go1.26.0, linux/arm64)",
		},
		"a commit": {
			info: debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "(devel)"}, Settings: vcs},
			want: "devel (commit 0123456789ab of 2026-11-23, go1.26.0, linux/arm64)",
		},
		"uncommitted changes": {
			info: debug.BuildInfo{GoVersion: "go1.26.0", Settings: append(vcs, debug.BuildSetting{Key: "vcs.modified",
				Value: "true"})},
			want: "devel (commit 0123456789ab+changes of 2026-11-23, go1.26.0, linux/arm64)",
		},
		"no repository": {
			info: debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "(devel)"}, Settings: settings()},
			want: "devel (commit unknown, go1.26.0, linux/arm64)",
		},
		"a stamp": {
			info:  debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "(devel)"}, Settings: settings()},
			stamp: "v1.2.3 0123456789abcdef 2026-11-23T08:00:00Z",
			want:  "v1.2.3 (commit 0123456789ab of 2026-11-23, go1.26.0, linux/arm64)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := parse(&c.info, c.stamp).long(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// What the programs of this build print is one line.
func TestThisBuild(t *testing.T) {
	t.Parallel()
	for _, text := range []string{Version(), Long()} {
		if text == "" || strings.Contains(text, "\n") {
			t.Errorf("%q", text)
		}
	}
}

// TestShort checks what a program says its version is: the tag, else the commit, else that nobody knows.
func TestShort(t *testing.T) {
	was := stamp
	t.Cleanup(func() { stamp = was })
	for text, want := range map[string]string{
		"v1.2.3 0123456789abcdef 2026-11-23T08:00:00Z":  "v1.2.3",
		"(devel) 0123456789abcdef 2026-11-23T08:00:00Z": "0123456789ab of 2026-11-23",
		"(devel) 0123456 2026-11-23":                    "0123456 of 2026-11-23",
		"v1.2.3 0123456789abcdef":                       "devel", // no stamp: it has three words
		"":                                              "devel",
	} {
		if stamp = text; Version() != want {
			t.Errorf("%q: got %q, want %q", text, Version(), want)
		}
	}
}
