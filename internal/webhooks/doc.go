// Package webhooks delivers replies to HTTP endpoints, signed according to Standard Webhooks.
//
// A row for each delivery is written in the transaction of the reply. A Deliverer claims due rows for a
// limited time and records the result of each attempt. The claim of a worker that dies expires, so each
// reply is delivered at least once, always with the same id and body. The order is not defined. Each
// endpoint has its own goroutine and limit of concurrent attempts.
//
// The package uses the database only through Store.
package webhooks
