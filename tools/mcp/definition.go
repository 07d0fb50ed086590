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

	"turnkeeper/internal/jsonlimit"
	"turnkeeper/internal/membudget"
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
func listTools(ctx context.Context, session *sdk.ClientSession, server Server,
	memory *membudget.Budget) ([]mcpdef.Tool, error) {
	var all []mcpdef.Tool
	seen := map[string]bool{}
	cursor, size := "", 0
	account := memory.Account()
	defer account.Close()
	for range maxPages {
		lease := account.Lease()
		page, err := session.ListTools(membudget.With(ctx, lease), &sdk.ListToolsParams{Cursor: cursor})
		if err != nil {
			return nil, listError(server, err)
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
			all = append(all, mcpdef.Tool{Server: server.Name, Name: tool.Name, Seen: d})
		}
		lease.Release()
		if page.NextCursor == "" {
			return all, nil
		}
		cursor = page.NextCursor
	}
	return nil, errors.New("its list of tools has no end")
}

// listError returns why the tools could not be listed.
func listError(server Server, err error) error {
	answer := answerOf(err)
	if answer == nil || answer.Code != codeTooLarge {
		return fmt.Errorf("its tools could not be listed: %w", err)
	}
	if why, ok := strings.CutPrefix(answer.Message, tooLarge+": it has "); ok {
		return errors.New("it lists " + server.bounded(why, maxNote))
	}
	return fmt.Errorf("its list of tools is too large: at most %d MiB are taken", maxListing>>20)
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
	if jsonlimit.ToolSchema.Exact(raw, &value) != nil {
		return emptySchema
	}
	text, _ := sorted(value) // cannot fail: value was decoded from JSON
	return text
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
