// Package follow waits for changes in the database and shows the progress of a turn on a terminal.
package follow
