package agentdef

import (
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/internal/config/strictyaml"
)

var (
	modelForm    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*/[^\s]+$`)
	toolForm     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	scheduleForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	hostForm     = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?$`)
)

// read takes the front matter into the definition.
func (r *reader) read(front *strictyaml.Node) {
	if front == nil {
		return
	}
	r.Fields("", front, names(""), func(name string, v *strictyaml.Node) {
		readerOf(name)(r, name, v)
		if name == "max_output_tokens" || name == "context_window" {
			r.checkWindow(v)
		}
	})
}

// checkWindow refuses an answer that leaves no room for the question. It is
// called after either of the two keys, and speaks once both are known.
func (r *reader) checkWindow(v *strictyaml.Node) {
	if d := r.def; d.MaxOutputTokens > 0 && d.ContextWindow > 0 && d.MaxOutputTokens >= d.ContextWindow {
		r.Add(v.Line, "max_output_tokens is %d: it must be less than the context_window of %d", d.MaxOutputTokens, d.ContextWindow)
	}
}

func (r *reader) model(name string, v *strictyaml.Node) string {
	model := r.text(name, v)
	if v.Kind == strictyaml.Text && !modelForm.MatchString(model) {
		r.Add(v.Line, "%s is %q: it must be PROVIDER/MODEL, such as openai/gpt-5-mini", name, model)
	}
	return model
}

func (r *reader) fallbackModels(name string, v *strictyaml.Node) {
	models := r.texts(name, v)
	r.distinct(name, v, models)
	for i := range models {
		r.model(name, v.Items[i])
	}
	r.def.FallbackModels = models
}

func (r *reader) lane(name string, v *strictyaml.Node) {
	lane := r.text(name, v)
	if v.Kind == strictyaml.Text && lane != "agent" && lane != "conversation" {
		r.Add(v.Line, "%s is %q: it must be agent or conversation", name, lane)
	}
	r.def.LanePerConversation = lane == "conversation"
}

func (r *reader) tools(name string, v *strictyaml.Node) {
	tools := r.texts(name, v)
	r.distinct(name, v, tools)
	for i, tool := range tools {
		if !toolForm.MatchString(tool) {
			r.Add(v.Items[i].Line, "%s holds %q: a tool's name is 1 to 64 of a-z A-Z 0-9 _ -", name, tool)
		}
	}
	r.def.Tools = tools
}

func (r *reader) subAgents(name string, v *strictyaml.Node) {
	agents := r.texts(name, v)
	r.distinct(name, v, agents)
	for i, agent := range agents {
		switch err := turnkeeper.CheckAgentName(agent); {
		case err != nil:
			r.Add(v.Items[i].Line, "%s: %s", name, err)
		case agent == r.def.Name:
			r.Add(v.Items[i].Line, "%s holds %q: an agent cannot work for itself", name, agent)
		}
	}
	r.def.SubAgents = agents
}

// mcpServers reads which tools of which servers the agent has. Whether there is
// such a server is for those to say who have the settings.
func (r *reader) mcpServers(name string, v *strictyaml.Node) {
	var servers []string
	for _, field := range v.Fields {
		servers = append(servers, field.Key)
	}
	known := map[string]bool{}
	where := name + "."
	r.Fields(where, v, servers, func(server string, v *strictyaml.Node) {
		if err := turnkeeper.CheckMCPServerName(server); err != nil {
			r.Add(v.Line, "%s holds %v", name, err)
			return
		}
		tools := r.texts(where+server, v)
		r.distinct(where+server, v, tools)
		if v.Kind == strictyaml.List && len(tools) == 0 {
			r.Add(v.Line, "%s%s names no tool: list those the agent may call, or remove the line", where, server)
		}
		for i, tool := range tools {
			if err := turnkeeper.CheckMCPToolName(tool); err != nil {
				r.Add(v.Items[i].Line, "%s%s holds %v", where, server, err)
			}
			if full := turnkeeper.MCPToolName(server, tool); known[full] || slices.Contains(r.def.Tools, full) {
				r.Add(v.Items[i].Line, "%s%s holds %q, which the agent has already", where, server, tool)
			} else {
				known[full] = true
			}
		}
		r.def.MCPServers = append(r.def.MCPServers, MCPServer{Name: server, Tools: tools})
	})
}

func (r *reader) quietReply(name string, v *strictyaml.Node) {
	text := r.text(name, v)
	if v.Kind != strictyaml.Text {
		return
	}
	if core := quietCore(text); core == "" || utf8.RuneCountInString(text) > maxQuietReply || strings.ContainsFunc(text, unicode.IsControl) {
		r.Add(v.Line, "%s must be 1 to %d characters on one line, with a letter or digit", name, maxQuietReply)
	}
	r.def.QuietReply = text
}

func (r *reader) root(name string, v *strictyaml.Node) {
	root := r.text(name, v)
	switch {
	case v.Kind != strictyaml.Text:
		return
	case strings.TrimSpace(root) == "" || strings.ContainsRune(root, 0):
		r.Add(v.Line, "%s must be the path of a folder", name)
		return
	case !filepath.IsAbs(root):
		root = filepath.Join(r.start, root)
	}
	absolute, err := filepath.Abs(root)
	if err != nil {
		r.Add(v.Line, "%s %q cannot be made an absolute path: %v", name, root, err)
	}
	r.def.Root = absolute
}

func (r *reader) privateHosts(name string, v *strictyaml.Node) {
	hosts := r.texts(name, v)
	for i, host := range hosts {
		hosts[i] = strings.ToLower(host)
		if _, err := netip.ParseAddr(hosts[i]); err != nil && !hostForm.MatchString(hosts[i]) {
			r.Add(v.Items[i].Line, "%s holds %q: it must be a host name or an IP address, without scheme, port or path", name, host)
		}
	}
	r.distinct(name, v, hosts)
	r.def.AllowPrivateHosts = hosts
}

func (r *reader) contextWindow(name string, v *strictyaml.Node) {
	window := r.whole(name, v, 0, maxTokens)
	if window > 0 && window < 1024 {
		r.Add(v.Line, "%s is %d: it must be 0 (by the model's name) or 1024 to %d", name, window, maxTokens)
	}
	r.def.ContextWindow = int(window)
}

func (r *reader) temperature(name string, v *strictyaml.Node) {
	value, err := v.AsFloat()
	switch {
	case err != nil:
		r.Add(v.Line, "%s %v", name, err)
	case value < 0 || value > 2:
		r.Add(v.Line, "%s is %g: it must be 0 to 2", name, value)
	}
	r.def.Temperature = &value
}

func (r *reader) budget(name string, v *strictyaml.Node) {
	bounds := map[string]*int64{
		"turn_tokens": &r.def.Budget.TurnTokens, "turn_calls": &r.def.Budget.TurnCalls,
		"day_tokens": &r.def.Budget.DayTokens, "day_calls": &r.def.Budget.DayCalls,
		"tree_tokens": &r.def.Budget.TreeTokens, "tree_calls": &r.def.Budget.TreeCalls,
	}
	where := name + "."
	r.Fields(where, v, names(where), func(bound string, v *strictyaml.Node) {
		*bounds[bound] = r.whole(where+bound, v, 0, maxSpend)
	})
}
