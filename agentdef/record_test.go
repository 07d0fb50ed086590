package agentdef_test

import (
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper/agentdef"
	"turnkeeper/internal/config/strictyaml"
	"turnkeeper/internal/golden"
)

// valuesOfKeys are further values of keys.
var valuesOfKeys = map[string][]string{
	"model": {"a/b", "a/b/c", "-a/b", "a/", "\"a/b c\""}, "fallback_models": {"[a/b, b/c]", "[a/b, a/b]", "[b]", "[]"},
	"extraction_model": {"a/b"},
	"tools":            {"[clock]", "[clock, clock]", "[\"\"]", "[]"}, "sub_agents": {"[clerk]", "[desk]", "[Clerk]"},
	"root":                {"files", "/files", "../files", "\" \""},
	"allow_private_hosts": {"[Host.Local, \"10.0.0.1\", \"::1\"]", "[\"[::1]\"]", "[\"h:80\"]", "[\"\"]", "[-h]"},
	"mcp_servers": {"{s: [a, b]}", "{s: []}", "{s: [a, a]}", "{S x: [a]}", "{s: [\"a b\"]}",
		"{s: [a], t: [a]}", "{s: a}"},
	"approve": {"{\"*\": always, pay: never}", "{\"a b\": always}", "{pay: \" \"}"},
	"ask_audience": {"[ann, bob]", "[ann, ann]", "[\" \"]", "[" + strings.Repeat("x", 200) + "]",
		"[" + strings.Repeat("x", 201) + "]"},
	"inbox_labels": {"[private, untrusted]", "[secret]", "[private, private]"}, "quiet_reply": {"Nothing.",
		"\"...\"", "\"a\\nb\""},
	"on_degraded": {"silent", "summary", "Sorry."}, "on_failed": {"silent", "summary", "Sorry."},
	"temperature": {"0", "2", "2.01", "-0.01", "0.7", "\"1\""},
	"schedule.cron": {"\"0 9 * * 1-5\"", "\"0  9 * *  7\"", "\"@daily\"", "\"@every 1s\"", "\"@every 999ms\"",
		"\"@every x\"", "\"TZ=UTC 0 9 * * *\"", "\"0 0 30 2 *\"", "\"0 0 29 2 *\"", "\"* * * *\""},
	"schedule.name":         {"a.b_c-D", "\"a b\"", strings.Repeat("x", 64), strings.Repeat("x", 65)},
	"schedule.time_zone":    {"Europe/Berlin", "Local", "Mars/Base"},
	"schedule.conversation": {"main", strings.Repeat("x", 200), strings.Repeat("x", 201), "\"a\\0\"", "\"a\\rb\""},
	"schedule": {"[]", "[{cron: \"@daily\"}, {cron: \"@daily\"}]",
		"[{cron: \"@daily\", name: a}, {cron: \"@daily\"}]", "[x]", "{}"},
	"context_window": {"0", "1023", "1024"}, "max_output_tokens": {"0", "1", "1000000"},
}

var spanOfKey = regexp.MustCompile(`^(?:0, or )?(\S+) to (\S+?)(?: .*)?$`)

// valuesAt returns values of each kind for a key, those at its limits, and each of its words.
func valuesAt(t *testing.T, key agentdef.Key) []string {
	t.Helper()
	values := []string{"[a, b]", "{a: b}", "5", "true", "text", "\"\"", "~"}
	if found := spanOfKey.FindStringSubmatch(key.Bounds); found != nil {
		for i, beyond := range []int64{-1, 1} {
			if n, err := strictyaml.ParseInt(found[i+1]); err == nil && key.Type != "duration" {
				values = append(values, fmt.Sprint(n), fmt.Sprint(n+beyond))
			} else if d, err := strictyaml.ParseDuration(found[i+1]); err == nil {
				values = append(values, d.String(), (d + time.Duration(beyond)).String())
			}
		}
	}
	for word := range strings.SplitSeq(strings.ReplaceAll(key.Bounds, " or ", ", "), ", ") {
		if word != "" && !strings.ContainsAny(word, " `") {
			values = append(values, word)
		}
	}
	return append(values, valuesOfKeys[key.Name]...)
}

// TestEveryKeyWithEveryKindOfValue records what becomes of good and bad values of each key of an agent's file.
func TestEveryKeyWithEveryKindOfValue(t *testing.T) {
	t.Parallel()
	var written strings.Builder
	for _, key := range agentdef.Keys() {
		for _, value := range valuesAt(t, key) {
			parts := strings.Split(key.Name, ".")
			front := "description: An agent.\n"
			for i, part := range parts {
				front += strings.Repeat("  ", i) + part + ": "
				if i < len(parts)-1 {
					front += "\n"
				}
			}
			front += value + "\n"
			if parts[0] == "schedule" && len(parts) > 1 && key.Name != "schedule.cron" {
				front += "  cron: \"@hourly\"\n"
			}
			fmt.Fprintf(&written, "%s: %s\n", key.Name, shorter(value))
			def, err := agentdef.Parse("/srv/agents/desk.md", []byte("---\n"+front+"---\nYou help.\n"))
			for _, fault := range strictyaml.Split(err) {
				fmt.Fprintf(&written, "  %s\n", shorter(strings.TrimPrefix(fault.Error(), "/srv/agents/")))
			}
			if err != nil {
				continue
			}
			for _, line := range golden.Fields("", reflect.ValueOf(*def)) {
				if !slices.ContainsFunc([]string{".Name=", ".Path=", ".Hash=", ".Source=", ".Prompt="},
					func(same string) bool { return strings.HasPrefix(line, same) }) {
					fmt.Fprintf(&written, "  %s\n", shorter(line))
				}
			}
		}
	}
	golden.File(t, filepath.Join("testdata", "keys.txt"), strings.ReplaceAll(written.String(),
		"  .Description=An agent.\n", ""))
}

// shorter shortens a long text.
func shorter(text string) string {
	if len(text) > 300 {
		return fmt.Sprintf("%s... (%d bytes)", text[:100], len(text))
	}
	return text
}
