// Package enqueue is the program that puts a message into an inbox and, if asked, waits for the reply. It links neither
// providers nor tools nor the queue.
package enqueue
