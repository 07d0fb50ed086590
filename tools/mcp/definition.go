package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"turnkeeper/tools/mcp/mcpdef"
)

// Limits of a server's list of tools.
const (
	maxPages       = 100
	maxTools       = 2000
	maxDescription = 16 << 10 // bytes per tool
	maxSchema      = 64 << 10 // bytes per tool
	maxListing     = 16 << 20 // bytes in total
)

// emptySchema accepts any arguments.
const emptySchema = `{"properties":{},"type":"object"}`

// listTools reads all pages of a session's tool list.
func listTools(ctx context.Context, session *sdk.ClientSession, server string) ([]mcpdef.Tool, error) {
	var all []mcpdef.Tool
	seen := map[string]bool{}
	cursor, size := "", 0
	for range maxPages {
		page, err := session.ListTools(ctx, &sdk.ListToolsParams{Cursor: cursor})
		if err != nil {
			return nil, fmt.Errorf("its tools could not be listed: %w", err)
		}
		for _, tool := range page.Tools {
			if tool == nil || seen[tool.Name] || mcpdef.CheckToolName(tool.Name) != nil {
				continue // no agent can name it
			}
			if len(all) == maxTools {
				return nil, fmt.Errorf("it lists more than %d tools", maxTools)
			}
			seen[tool.Name] = true
			d := definitionOf(tool)
			if size += len(d.Description) + len(d.Schema); size > maxListing {
				return nil, fmt.Errorf("its list of tools is too large: at most %d MiB are taken", maxListing>>20)
			}
			all = append(all, mcpdef.Tool{Server: server, Name: tool.Name, Seen: d})
		}
		if page.NextCursor == "" {
			return all, nil
		}
		cursor = page.NextCursor
	}
	return nil, errors.New("its list of tools has no end")
}

func definitionOf(tool *sdk.Tool) mcpdef.Definition {
	d := mcpdef.Definition{Description: clean(tool.Description), Schema: emptySchema}
	if schema, err := json.Marshal(tool.InputSchema); err == nil && tool.InputSchema != nil {
		d.Schema = canonical(schema)
	}
	if a := tool.Annotations; a != nil {
		d.ReadOnly, d.Idempotent = a.ReadOnlyHint, a.IdempotentHint
	}
	if d.Description == "" {
		d.Description = clean(tool.Title)
	}
	d.Hash = hashOf(tool.Name, d)
	return d
}

// canonical returns JSON with sorted keys and without needless escapes.
func canonical(raw []byte) string {
	var value any
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return emptySchema
	}
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // cannot fail: value was decoded from JSON
	return strings.TrimSuffix(b.String(), "\n")
}

func hashOf(name string, d mcpdef.Definition) string {
	encoded, _ := json.Marshal([]any{name, d.Description, d.Schema, d.ReadOnly, d.Idempotent}) // cannot fail
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:])
}

// clean returns a server's text in a form that can be stored.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(strings.TrimSpace(text), "\uFFFD"), "\x00", "")
}
