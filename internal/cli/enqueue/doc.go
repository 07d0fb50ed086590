// Package enqueue is the program that puts a message into an inbox and, with --wait, waits for the reply. It links
// neither providers nor tools nor River.
package enqueue
