package config_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"turnkeeper/internal/config"
	"turnkeeper/internal/golden"
)

// A mapping of the config file, with keys that make it valid.
type mapping struct {
	path string // "providers p"
	own  [][2]string
	keys []config.MappingKey
	few  bool // only a few values of each key: another mapping with these keys has all
}

const oauthPath = "mcp_login_key:{env_is_LOGIN_KEY} mcp_servers s url:https://h/x oauth"

var mappings = []mapping{
	{"providers p", [][2]string{{"base_url", "http://h/v1"}}, config.ProviderKeys, false},
	{"models a/b", nil, config.ModelKeys, false},
	{"tools t", [][2]string{{"description", "Tells."}, {"command", "[tell]"}}, config.ToolKeys, false},
	{"tools t", nil, config.ToolKeys[3:], true},
	{"webhooks w", [][2]string{{"url", "https://h/x"}, {"secret_env", "SIGN_24"}}, config.WebhookKeys, false},
	{"mcp_servers s", [][2]string{{"command", "[serve]"}}, config.MCPServerKeys, false},
	{"mcp_servers s", [][2]string{{"url", "https://h/x"}}, config.MCPServerKeys, true},
	{"mcp_servers s command:[x] tools x", nil, config.MCPToolKeys, false},
	{oauthPath, [][2]string{
		{"grant", "client_credentials"}, {"client_id", "robot"}, {"client_secret", "{env: GOOD}"},
	}, config.MCPOAuthKeys, false},
	{oauthPath, [][2]string{{"grant", "client_credentials"}, {"client_id", "robot"}}, config.MCPOAuthKeys, true},
	{oauthPath, [][2]string{{"grant", "authorization_code"}}, config.MCPOAuthKeys, true},
	{oauthPath, [][2]string{{"grant", "enterprise"}, {"client_id", "robot"}}, config.MCPOAuthKeys, true},
	{"mcp_servers s url:https://h/x oauth grant:enterprise client_id:robot identity", [][2]string{
		{"token_endpoint", "https://h/t"}, {"client_id", "me"}, {"token", "{file: good.txt}"},
	}, config.MCPIdentityKeys, false},
}

// valuesOf are further values of keys, by the end of the key's name.
var valuesOf = map[string][]string{
	"_env": {"GOOD", "SPACED", "NOT_SET", "hush-hush", "TWO_LINES", "DELETE", "BLANK", "SIGN_23", "SIGN_24",
		"SIGN_64", "SIGN_65", "SIGN_PLAIN", "SIGN_BAD", "ADDRESS"},
	"_file": {"good.txt", "full.txt", "large.txt", "empty.txt", "missing.txt", ".", "sign.txt"},
	"key": {"{env: KEY_ED}", "{env: KEY_P256}", "{env: KEY_P224}", "{env: KEY_EC}", "{env: KEY_RSA}",
		"{env: KEY_NONE}", "{env: KEY_ESCAPED}", "{file: key.pem}"},
	"secret":       references,
	"token":        references,
	"headers":      texts("X-A", "Authorization"),
	"query":        texts("region", "a_Token"),
	"env":          append(texts("A", "A_KEY"), "{TURNKEEPER_A: x}", "{A: \"\"}", "{A: \"x\\ny\"}"),
	"url":          addresses,
	"issuer":       addresses,
	"_endpoint":    addresses,
	"labels":       {"[untrusted]", "[private, untrusted]", "[private, private]", "[secret]", "[]"},
	"sinks":        {"[sends]", "[changes, sends]", "[sends, sends]", "[mails]"},
	"destination":  {"to", "[to, cc]", "[to, to]", "[to, \"\"]", "\" \""},
	"destinations": {"[\"*@example.com\"]", "[\"*\"]", "[\"*@h.example\", \"*@h.example\"]"},
	"agents":       {"[desk, clerk, desk]", "[Clerk]", "[]"},
	"roots":        {"[/a/../b, c]", "[/a, \" \"]"},
	"command":      {"[x]", "[]", "[\"\"]", "[x, \"\"]", "[x, [y]]"},
	"arguments":    {"{type: object, properties: {n: {maximum: 1.50}}}", "[]"},
	"extra":        {"{a: 1, b: [x, ~, 1.50], c: {d: true}}", "{a: 1, a: 2}", "{a: 99999999999999999999}"},
	"tools": {"{x: {}}", "{\"a b\": {}}", "{x: {effect: none}, y: {effect: keyed, timeout: 5}}",
		"{x: {}, x: {}}"},
	"scopes":   {"[a, b]", "[a b]", "[\"\"]", "['\"']", "['\\']", "[\"!~\"]", "[ü]"},
	"effect":   {"none", "keyed", "once", "twice"},
	"detached": {"true"},
	"profile":  {"azure", "ollama", "gpt"},
}

var (
	addresses = []string{
		"http://h/x", "https://h/x/y//", "https://h", "https://h/", "https://h/openai/v1", "ftp://h", "https://",
		"https://:80/x", "https://u:hush@h/x", "https://h/x?a=b", "'https://h/x?a= b'",
		"https://h/x?a=b#c", "'https://h/x#c'", "http://127.0.0.1:1/x", "http://10.0.0.1/x", "'http://[::1]/x'",
		"http://localhost/x", "'http://h/%zz'",
	}
	references = []string{"{env: GOOD}", "{file: good.txt}", "{env: GOOD, file: good.txt}", "{env: NOT_SET}",
		"{file: missing.txt}", "{env: [x]}", "{env: hush-hush}", "{}", "{ env: TWO_LINES}"}
)

// texts returns values of a mapping of texts that may be secret. The second of the names suggests that.
func texts(name, secret string) (list []string) {
	for _, value := range append([]string{"plain", "\"\"", "\"hush\\nhush\"", "5", "[x]", "{env: BEARER}"},
		references...) {
		list = append(list, "{"+name+": "+value+"}")
	}
	return append(list, "{"+secret+": literal}", "{"+secret+": Bearer literal}", "{"+name+": a, "+secret+": b}",
		"{a b: x}", "{Accept: x}")
}

// TestEveryKeyWithEveryKindOfValue records what becomes of good and bad values of each key of each mapping. All entries
// of a mapping are in one file, because a file's faults are reported together.
func TestEveryKeyWithEveryKindOfValue(t *testing.T) {
	r := newRecord(t)
	for _, m := range mappings {
		entries := []entry{{"as it is", m.own}}
		for _, key := range m.keys {
			for _, value := range m.candidates(t, key) {
				own := slices.DeleteFunc(slices.Clone(m.own), func(pair [2]string) bool { return pair[0] == key.Name })
				entries = append(entries, entry{key.Name + ": " + value, append(own, [2]string{key.Name, value})})
			}
		}
		first := m.keys[0].Name
		entries = append(
			entries,
			entry{"the same twice", slices.Concat(m.own, [][2]string{{first, "x"}, {first, "x"}})},
			entry{"another twice", slices.Concat(m.own, [][2]string{{"x" + first, "x"}, {"x" + first, "x"}})},
			entry{"like no other", slices.Concat(m.own, [][2]string{{"like_no_other", "x"}})},
		)
		fmt.Fprintf(&r.written, "%s %v\n", m.path, m.own)
		for some := range slices.Chunk(entries[1:], 150) {
			r.entries(m, slices.Concat(entries[:1], some))
		}
	}
	for _, value := range append([]string{"{env: LOGIN_KEY}", "{env: LOGIN_KEY_31}", "text", "~"}, references...) {
		r.save("mcp_login_key: " + value + "\n")
		c, err := config.Load(config.LoadOptions{File: "settings.yaml", Env: env(r.env)})
		fmt.Fprintf(&r.written, "mcp_login_key: %s\n", value)
		if err == nil {
			fmt.Fprintf(&r.written, "  is %s\n", r.short(c.MCPLoginKey.Reveal()))
		}
		for _, fault := range r.faults(err) {
			fmt.Fprintf(&r.written, "  %s\n", fault)
		}
	}
	golden.File(t, filepath.Join(sourceFolder, "testdata", "mappings.txt"), r.written.String())
}

// An entry is one way to write a mapping.
type entry struct {
	title string
	pairs [][2]string
}

// candidates returns values of a key: of each kind, at its limits, each of its words, and others.
func (m mapping) candidates(t *testing.T, key config.MappingKey) []string {
	if m.few {
		return []string{"[x]", "5", "true", "text", "https://h/x", "{env: KEY_P256}"}
	}
	values := []string{"[a, b]", "{a: b}", "5", "true", "text", "\"\"", "~"}
	if key.Type == "true or false" {
		values = append(values, "false")
	}
	values = append(values, limitsOf(t, key.Type, key.Bounds)...)
	for word := range strings.SplitSeq(strings.ReplaceAll(key.Bounds, " or ", ", "), ", ") {
		if word != "" && !strings.ContainsAny(word, " `") {
			values = append(values, word)
		}
	}
	for _, end := range slices.Sorted(maps.Keys(valuesOf)) {
		if key.Name == end || (strings.HasPrefix(end, "_") || end == "url" || end == "key") &&
			strings.HasSuffix(key.Name, end) {
			values = append(values, valuesOf[end]...)
		}
	}
	return values
}

var number = regexp.MustCompile(`_n(\d+)`)

// numberIn returns the number of the entry that a text is about.
func numberIn(t *testing.T, text string) int {
	t.Helper()
	found := number.FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("it says nothing of an entry: %s", text)
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// entries writes down what becomes of entries: their faults, what is missing without secrets, and the values of those
// without a fault. The first is the mapping as it is.
func (r *record) entries(m mapping, entries []entry) {
	faults, missing, values := make([][]string, len(entries)), make([][]string, len(entries)),
		make([][]string, len(entries))
	load := func(without bool, faults [][]string) *config.Config {
		starts := r.mapping(m, entries, faults)
		c, err := config.Load(config.LoadOptions{File: "settings.yaml", Env: env(r.env), WithoutSecrets: without})
		for _, fault := range r.faults(err) {
			i := numberIn(r.t, fault)
			faults[i] = append(faults[i], relative(fault, starts[i]))
		}
		return c
	}
	load(false, faults)
	load(true, missing)
	c := load(true, missing)
	for _, secret := range c.Missing {
		i := numberIn(r.t, secret.Setting)
		fault := "missing: " + secret.Problem
		if slices.ContainsFunc(faults[i], func(f string) bool { return strings.HasSuffix(f, ": "+secret.Problem) }) {
			fault = "so it is missing: " + secret.Setting
		}
		missing[i] = append(missing[i], fault)
	}
	c = load(false, faults)
	for _, line := range r.shows(c) {
		if number.MatchString(line) {
			i := numberIn(r.t, line)
			values[i] = append(values[i], number.ReplaceAllString(line, ""))
		}
	}
	for i, e := range entries {
		becomes := faults[i]
		if !slices.Equal(missing[i], faults[i]) {
			becomes = slices.Concat(becomes, missing[i])
		}
		if faults[i] == nil {
			becomes = slices.Concat(becomes, lacking(values[i], values[0], ""))
		}
		if faults[i] == nil && i > 0 {
			becomes = slices.Concat(becomes, lacking(values[0], values[i], "not "))
		}
		fmt.Fprintf(&r.written, "  %s\n", e.title)
		for _, line := range becomes {
			fmt.Fprintf(&r.written, "    %s\n", number.ReplaceAllString(line, ""))
		}
	}
	var masked []string
	for _, secret := range c.Secrets() {
		masked = append(masked, "  masked: "+r.short(secret)+"\n")
	}
	slices.Sort(masked)
	r.written.WriteString(strings.Join(slices.Compact(masked), ""))
}

// lacking returns the lines that others lack, with a word before each.
func lacking(lines, others []string, word string) (list []string) {
	for _, line := range lines {
		if !slices.Contains(others, line) {
			list = append(list, word+line)
		}
	}
	return list
}

// relative counts the line of a fault from the start of its entry.
func relative(fault string, start int) string {
	path, rest, _ := strings.Cut(fault, ":")
	at, text, _ := strings.Cut(rest, ":")
	line, err := strconv.Atoi(at)
	if err != nil || path != "settings.yaml" { // a fault of the whole file
		return fault
	}
	return fmt.Sprintf("+%d:%s", line-start, text)
}

// mapping writes a config file with the entries that have no faults. It returns the line at which each starts. In the
// path of a mapping, KEY:VALUE is a key beside the next part.
func (r *record) mapping(m mapping, entries []entry, faults [][]string) (starts []int) {
	var text strings.Builder
	parts := strings.Fields(m.path)
	for strings.Contains(parts[0], ":") {
		key, value, _ := strings.Cut(parts[0], ":")
		fmt.Fprintf(&text, "%s: %s\n", key, strings.ReplaceAll(value, "_is_", ": "))
		parts = parts[1:]
	}
	fmt.Fprintf(&text, "%s:\n", parts[0])
	for i, e := range entries {
		starts = append(starts, strings.Count(text.String(), "\n")+1)
		if faults[i] != nil {
			continue
		}
		indent := "    "
		fmt.Fprintf(&text, "  %s_n%d:\n", parts[1], i)
		for _, part := range parts[2:] {
			key, value, pair := strings.Cut(part, ":")
			if fmt.Fprintf(&text, "%s%s: %s\n", indent, key, value); !pair {
				indent += "  "
			}
		}
		for _, pair := range e.pairs {
			fmt.Fprintf(&text, "%s%s: %s\n", indent, pair[0], pair[1])
		}
		if len(e.pairs) == 0 {
			text.WriteString(indent + "{}\n")
		}
	}
	if !slices.ContainsFunc(faults, func(f []string) bool { return f == nil }) { // none is left
		text.Reset()
	}
	r.save(text.String())
	return starts
}

func (r *record) save(text string) {
	if err := os.WriteFile("settings.yaml", []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}
