package shell

import (
	"context"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/storage/operate"
)

// How an agent's file differs from its registration.
const (
	fileUnregistered = "no worker has registered it"
	fileChanged      = "its file differs from what the workers registered"
)

// ChangeOf describes how an agent's file differs from the registered definition. It returns "" if they are the same.
func ChangeOf(ctx context.Context, store *operate.Store, file *agentdef.Definition,
	registered []turnkeeper.AgentRegistration) (string, error) {
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

// needsOf lists the tools, MCP servers and providers that the file needs and the old definition did not.
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
	known := map[string]bool{"": true, "demo": true} // "" means default_model; demo is built in
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

// AdviceOfChange says how to make workers load the changed file.
func AdviceOfChange(change string) string {
	advice := "if the workers use this folder, send them SIGHUP to reload it"
	if strings.Contains(change, "; new in it: ") {
		return advice +
			"; restart workers that were started before the new entries were configured: they read tools, servers and providers only at start"
	}
	return advice + ". If they keep the old definition after that, their log says why"
}
