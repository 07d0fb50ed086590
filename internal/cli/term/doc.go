// Package term prints for people: colours, widths, tables, times, and a page that is drawn again and again. Text
// that models, tools or senders wrote never reaches a terminal as it came: what a terminal would obey is escaped.
package term
