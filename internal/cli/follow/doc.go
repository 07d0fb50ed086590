// Package follow waits for what happens in the database, and shows on a terminal what a turn does meanwhile.
package follow
