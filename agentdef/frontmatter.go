package agentdef

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/config/strictyaml"
	"turnkeeper/policy"
	"turnkeeper/tools/mcp/mcpdef"
)

var (
	modelForm    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*/[^\s]+$`)
	toolForm     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	scheduleForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	hostForm     = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?$`)
)

// A reader decodes the front matter into a definition and collects its faults.
type reader struct {
	strictyaml.Decoder
	def   *Definition
	start string // folder at which a relative root starts
}

// read decodes the front matter. front may be nil.
func (r *reader) read(front *strictyaml.Node) {
	if front == nil {
		return
	}
	r.Checks = map[string]func(string) string{
		"model":     form(modelForm.MatchString, " is %q: it must be PROVIDER/MODEL, such as openai/gpt-5-mini"),
		"tool":      form(toolForm.MatchString, " holds %q: a tool's name is 1 to 64 of a-z A-Z 0-9 _ -"),
		"sub-agent": r.checkSubAgent,
		"rule tool": form(isRuleTool, " holds %q: a tool's name is 1 to 64 of a-z A-Z 0-9 _ -, or * for all tools"),
		"rule": form(func(rule string) bool {
			return strings.TrimSpace(rule) != ""
		}, " is %q: it must be always, never or a rule"),
		"audience": form(func(name string) bool {
			return strings.TrimSpace(name) != "" && len(name) <= 200
		}, " holds %q: a name has 1 to 200 bytes"),
		"label": form(func(label string) bool {
			return slices.Contains(policy.Labels, policy.Label(label))
		}, " holds %q: a label is untrusted or private"),
		"mcp server":  func(name string) string { return holds(mcpdef.CheckServerName(name)) },
		"mcp tool":    func(name string) string { return holds(mcpdef.CheckToolName(name)) },
		"quiet reply": checkQuietReply, "on_degraded": checkOnDegraded, "on_failed": checkOnFailed,
		"schedule name": form(scheduleForm.MatchString, " is %q: it must be 1 to 64 of a-z A-Z 0-9 . _ -"),
		"time zone":     form(isTimeZone, " is %q: it must be an IANA time zone such as UTC or Europe/Berlin"),
		"conversation": form(isConversation, fmt.Sprintf(" is %%q: it must be 1 to %d bytes on one line",
			turnkeeper.MaxKeyLength)),
		"message": form(func(text string) bool {
			return strings.TrimSpace(text) != ""
		}, " is %q: it must not be empty"),
	}
	r.Readers = map[string]func(strictyaml.Place, *strictyaml.Node, any){
		"schedules": r.schedules, "cron": r.cron, "mcp servers": r.mcpServers, "root": r.root, "hosts": r.privateHosts,
	}
	var values turnkeeper.Bounds
	r.Decode("", front, r.def, boundKeys(&values)...)
	d := r.def
	d.Overrides = bounds.Given(values, func(name string) bool { return front.Get(name) != nil })
	if d.Replies.OnDegraded == replySummary {
		d.Replies.OnDegraded = ""
	}
	if d.MaxOutputTokens > 0 && d.ContextWindow > 0 && d.MaxOutputTokens >= d.ContextWindow {
		r.Add(front.Get("max_output_tokens").Line,
			"max_output_tokens is %d: it must be less than the context_window of %d", d.MaxOutputTokens,
			d.ContextWindow)
	}
}

// boundKeys returns the keys of the bounds that an agent's file may set. They are read into b.
func boundKeys(b *turnkeeper.Bounds) (keys []strictyaml.OwnKey) {
	for _, row := range bounds.All() {
		if row.Agent {
			tag := reflect.StructTag(fmt.Sprintf("in:%q", row.Range()))
			keys = append(keys, strictyaml.OwnKey{Key: row.Name, Tag: tag, To: row.Field(b)})
		}
	}
	return keys
}

// form returns a check that fails with fault, formatted with the text, unless good.
func form(good func(string) bool, fault string) func(string) string {
	return func(text string) string {
		if good(text) {
			return ""
		}
		return fmt.Sprintf(fault, text)
	}
}

func holds(err error) string {
	if err == nil {
		return ""
	}
	return " holds " + err.Error()
}

func (r *reader) checkSubAgent(name string) string {
	switch err := turnkeeper.CheckAgentName(name); {
	case err != nil:
		return ": " + err.Error()
	case name == r.def.Name:
		return fmt.Sprintf(" holds %q: an agent cannot be its own sub-agent", name)
	}
	return ""
}

func checkQuietReply(text string) string {
	if quietCore(text) == "" || utf8.RuneCountInString(text) > maxQuietReply || strings.ContainsFunc(text,
		unicode.IsControl) {
		return fmt.Sprintf(" must be 1 to %d characters on one line, with a letter or digit", maxQuietReply)
	}
	return ""
}

func isRuleTool(name string) bool { return name == policy.AllTools || toolForm.MatchString(name) }

func isTimeZone(name string) bool {
	_, err := time.LoadLocation(name)
	return err == nil && name != "" && name != "Local"
}

// isConversation reports whether the inbox accepts a conversation's name.
func isConversation(name string) bool {
	return strings.TrimSpace(name) != "" && len(name) <= turnkeeper.MaxKeyLength &&
		!strings.ContainsAny(name, "\n\r\x00")
}

// mcpServers reads the agent's tools of MCP servers. Callers that have the settings must check
// that the servers exist.
func (r *reader) mcpServers(at strictyaml.Place, v *strictyaml.Node, _ any) {
	known := map[string]bool{}
	r.Entries(at.Where, v, "mcp server", func(at strictyaml.Place, v *strictyaml.Node) {
		var tools []string
		r.Value(at, v, &tools, `once:"yes" check:"mcp tool"`)
		if v.Kind == strictyaml.List && len(v.Items) == 0 {
			r.Add(v.Line, "%s names no tool: list those the agent may call, or remove the line", at.Where)
		}
		for i, tool := range tools {
			if full := mcpdef.ToolName(at.Key, tool); known[full] || slices.Contains(r.def.Tools, full) {
				r.Add(v.Items[i].Line, "%s holds %q, which the agent has already", at.Where, tool)
			} else {
				known[full] = true
			}
		}
		r.def.MCPServers = append(r.def.MCPServers, MCPServer{Name: at.Key, Tools: tools})
	})
}

func (r *reader) root(at strictyaml.Place, v *strictyaml.Node, to any) {
	root := ""
	r.Value(at, v, &root, "")
	switch {
	case v.Kind != strictyaml.Text:
		return
	case strings.TrimSpace(root) == "" || strings.ContainsRune(root, 0):
		r.Add(v.Line, "%s must be the path of a folder", at.Where)
		return
	case !filepath.IsAbs(root):
		root = filepath.Join(r.start, root)
	}
	absolute, err := filepath.Abs(root)
	if err != nil {
		r.Add(v.Line, "%s %q cannot be made an absolute path: %v", at.Where, root, err)
	}
	*to.(*string) = absolute
}

func (r *reader) privateHosts(at strictyaml.Place, v *strictyaml.Node, to any) {
	var hosts []string
	r.Value(at, v, &hosts, "")
	for i, host := range hosts {
		hosts[i] = strings.ToLower(host)
		if _, err := netip.ParseAddr(hosts[i]); err != nil && !hostForm.MatchString(hosts[i]) {
			r.Add(v.Items[i].Line, "%s holds %q: it must be a host name or an IP address, without scheme, port or path",
				at.Where, host)
		} else if slices.Contains(hosts[:i], hosts[i]) {
			r.Add(v.Items[i].Line, "%s holds %q twice", at.Where, hosts[i])
		}
	}
	*to.(*[]string) = hosts
}
