package mcp

// NewSmall is New with a smaller bound for messages.
func NewSmall(cfg Config, maxFrame int) *Client {
	cfg.maxFrame = maxFrame
	return New(cfg)
}
