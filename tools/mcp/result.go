package mcp

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"turnkeeper/internal/jsonlimit"
	"turnkeeper/tools"
)

// resultOf converts a server's answer. Its text becomes the text of the result.
// Structured content is added to the text, unless a text is the same value.
// Each image, audio or binary resource becomes an attached output; if there is
// only one and nothing else, it is the result.
func resultOf(r *sdk.CallToolResult) tools.Result {
	p := parts{}
	for _, content := range r.Content {
		p.add(content)
	}
	if value := r.StructuredContent; value != nil {
		r.StructuredContent = nil // not needed while the text is made
		p.structured(value)
	}
	if len(p.texts) == 0 && len(p.files) == 1 && !r.IsError {
		return tools.Result{Bytes: p.files[0].Bytes, MediaType: p.files[0].MediaType}
	}
	result := tools.Result{Text: strings.Join(p.texts, "\n\n"), MediaType: p.mediaType, IsError: r.IsError,
		Attached: p.files}
	if result.Text == "" && len(p.files) == 0 {
		result.Text = "The server answered with nothing."
		if r.IsError {
			result.Text = "tool error: the server says that the call failed, and not why"
		}
	}
	return result
}

// parts are the parts of an answer.
type parts struct {
	texts     []string
	mediaType string // if there is only one text; empty: text/plain
	files     []tools.Attachment
}

func (p *parts) add(content sdk.Content) {
	switch c := content.(type) {
	case *sdk.TextContent:
		p.text(c.Text, "")
	case *sdk.ImageContent:
		p.file("image", c.MIMEType, c.Data)
	case *sdk.AudioContent:
		p.file("audio", c.MIMEType, c.Data)
	case *sdk.ResourceLink:
		p.text(linkText(c), "")
	case *sdk.EmbeddedResource:
		p.resource(c.Resource)
	default:
		p.text(fmt.Sprintf("[content of a kind that is not known here: %T]", content), "")
	}
}

func (p *parts) text(text, mediaType string) {
	if text == "" {
		return
	}
	p.mediaType = ""
	if len(p.texts) == 0 {
		p.mediaType = mediaType
	}
	p.texts = append(p.texts, text)
}

func (p *parts) file(name, mediaType string, content []byte) {
	if content == nil {
		content = []byte{}
	}
	p.files = append(p.files, tools.Attachment{Name: name, MediaType: mediaType, Bytes: content})
}

func (p *parts) resource(r *sdk.ResourceContents) {
	switch {
	case r == nil:
	case r.Blob != nil:
		p.file("resource "+r.URI, r.MIMEType, r.Blob)
	default:
		p.text(fmt.Sprintf("[resource %s]\n%s", r.URI, r.Text), "")
	}
}

func linkText(l *sdk.ResourceLink) string {
	text := "[link to the resource " + l.URI
	for _, more := range []string{l.Name, l.Description, l.MIMEType} {
		if more != "" {
			text += ", " + more
		}
	}
	return text + "]"
}

// structured adds structured content, unless a text is the same value.
func (p *parts) structured(value any) {
	whole, err := sorted(value)
	if err != nil {
		return
	}
	for _, text := range p.texts {
		if says(text, whole) {
			return
		}
	}
	mediaType := "application/json"
	if rounded(value) {
		whole, mediaType = whole+"\n[whole numbers from 9007199254740992 on are rounded here]", ""
	}
	if len(p.texts) > 0 {
		whole, mediaType = "[structured content]\n"+whole, ""
	}
	p.text(whole, mediaType)
}

// says reports whether a text is the same JSON value. It compares numbers as
// floats: 1.0 equals 1, and structured content has already lost any higher
// precision.
func says(text, whole string) bool {
	var value any
	if jsonlimit.ToolText.Unmarshal([]byte(text), &value) != nil {
		return false
	}
	same, err := sorted(value)
	return err == nil && same == whole
}

// rounded reports whether a value that the SDK has decoded has a float that stands for several integers.
func rounded(value any) bool {
	switch v := value.(type) {
	case float64:
		return math.Abs(v) >= 1<<53
	case []any:
		return slices.ContainsFunc(v, rounded)
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), rounded)
	}
	return false
}

// sorted returns a value as JSON with sorted keys and without needless escapes.
func sorted(value any) (string, error) {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.TrimSuffix(b.String(), "\n"), err
}
