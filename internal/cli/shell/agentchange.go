package shell

import (
	"context"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/storage/operate"
)

// What is said of a file that workers do not have as it is.
const (
	fileUnregistered = "no worker has registered it"
	fileChanged      = "its file differs from what the workers registered"
)

// ChangeOf says how an agent's file differs from what workers have registered; empty: it does not.
func ChangeOf(ctx context.Context, store *operate.Store, file *agentdef.Definition, registered []turnkeeper.AgentRegistration) (string, error) {
	i := slices.IndexFunc(registered, func(r turnkeeper.AgentRegistration) bool { return r.Name == file.Name })
	if i < 0 {
		return fileUnregistered, nil
	}
	if registered[i].DefinitionHash == file.Hash {
		return "", nil
	}
	source, err := store.Definition(ctx, registered[i].DefinitionHash)
	if err != nil {
		return "", err
	}
	old, err := agentdef.ParseRecorded(file.Name, source)
	if err != nil {
		old = &agentdef.Definition{}
	}
	if added := needsOf(file, old); len(added) > 0 {
		return fileChanged + "; new in it: " + strings.Join(added, ", "), nil
	}
	return fileChanged, nil
}

// needsOf lists what a worker must have for the file, and needed not have for the old one.
func needsOf(file, old *agentdef.Definition) (added []string) {
	for _, name := range file.Tools {
		if !slices.Contains(old.Tools, name) {
			added = append(added, "tool "+name)
		}
	}
	for _, server := range file.MCPServers {
		if !slices.ContainsFunc(old.MCPServers, func(o agentdef.MCPServer) bool { return o.Name == server.Name }) {
			added = append(added, "MCP server "+server.Name)
		}
	}
	known := map[string]bool{"": true, "demo": true} // the setting default_model, and what is built in
	for _, model := range old.Chain("") {
		provider, _, _ := strings.Cut(model, "/")
		known[provider] = true
	}
	for _, model := range file.Chain("") {
		if provider, _, _ := strings.Cut(model, "/"); !known[provider] {
			known[provider] = true
			added = append(added, "provider "+provider)
		}
	}
	return added
}

// AdviceOfChange says what makes workers take a file as it is.
func AdviceOfChange(change string) string {
	advice := "if this is the workers' folder, send them SIGHUP: they read their agents again"
	if strings.Contains(change, "; new in it: ") {
		return advice + "; if a worker was started before that was there, restart it: it reads tools, servers and providers at its start only"
	}
	return advice + ". If they keep the old file after that, their log says why"
}
