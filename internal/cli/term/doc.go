// Package term prints text for people: colours, widths, tables, times, and a page that refreshes. It escapes terminal
// control characters in text from models, tools and senders.
package term
